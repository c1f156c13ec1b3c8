// Compares the rows of `bench quality` with each other.
#pragma once

#include <string>
#include <vector>

#include "app/lab/bench/combinations.h"

namespace sparsereel::app::bench {

/// Returns a name for each row. It consists of the row's terms that not all rows have; if there are none, it is the
/// row's first term: "sparse", "topk=0.3,cache=forecast:0.1".
std::vector<std::string> names_of(const std::vector<Combination>& rows);

/// Returns the index of the row that has all terms of the comma list `terms`, such as "quantized,cache=0". A list that
/// equals a row's name selects that row, even if other rows have these terms too. Throws Error naming the rows unless
/// exactly one row fits. `names` are the names of the rows.
size_t find_row(const std::string& terms, const std::vector<Combination>& rows, const std::vector<std::string>& names);

/// Compares each other row with `rows[against]`, prompt by prompt. Fills psnr_difference, ssim_difference and
/// ms_ssim_difference: the row's figure minus the figure of `rows[against]`, averaged over the prompts. From two
/// prompts on, also fills the standard error of that average: psnr_difference_se and so on.
void compare_prompts(Rows& rows, size_t against);

/// Fills beaten_by of the rows that have psnr and denoise_seconds; all rows must have names. It is "full" if full
/// attention is faster than the row. Otherwise it is the name of the row with the highest PSNR among those that are
/// both faster and higher in PSNR; null if there is none. A row is faster if the upper quartile of its seconds lies
/// below the lower quartile of the other row's seconds. If rows have no quartiles, their seconds are compared.
void mark_beaten(Rows& rows);

}  // namespace sparsereel::app::bench
