// What the rows of `bench quality` say of each other.
#pragma once

#include <string>
#include <vector>

#include "app/lab/bench/combinations.h"

namespace sparsereel::app::bench {

/// A name for each: those of its terms that not all have, or the first: "sparse", "topk=0.3,cache=forecast:0.1".
std::vector<std::string> names_of(const std::vector<Combination>& rows);

/// Which row has all terms of the list, as in "quantized,cache=0"; its whole name tells it apart from one of more
/// terms. Throws Error naming the rows unless it is one alone. `names`: of the rows.
size_t find_row(const std::string& terms, const std::vector<Combination>& rows, const std::vector<std::string>& names);

/// Fills psnr_difference, ssim_difference and ms_ssim_difference of the others, the mean over the prompts of the row's
/// figure less that of `rows[against]` for the same prompt, and the standard error of that mean (from two prompts on),
/// psnr_difference_se and so on.
void compare_prompts(Rows& rows, size_t against);

/// Fills beaten_by, of named rows with psnr and denoise_seconds: the name of the row that is nearest to full attention
/// of all that are both nearer and faster; "full" of one that is slower than full attention. A row is faster than
/// another where the upper quartile of its seconds lies below the lower quartile of the other's; rows without quartiles
/// are compared by their seconds.
void mark_beaten(Rows& rows);

}  // namespace sparsereel::app::bench
