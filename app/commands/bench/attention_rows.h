// The rows of `bench attention`: one contender on one workload.
#pragma once

#include <string>

#include "app/commands/bench/combinations.h"
#include "app/measure/workloads.h"

namespace sparsereel::app::bench {

/// workload, B,H,N,D and mode; the selection of mode sparse; kernel (what ran), dtype and device; ms, of which
/// prepass_ms before the first block; tops, 10^12 operations a second of the blocks that were computed; limit_percent,
/// that in percent of what the tensor cores can do; speedup, over the fastest dense row; sparsity, means not counted;
/// mean_share, what means cost, as a share of full attention's work; predicted_error, what the selection predicts;
/// rel_l1 and cosine against exact attention, pooled over calls; note, why there is no time.
Columns attention_columns();

/// Where nothing was measured yet. `policy`: of mode sparse, else null.
Row attention_row(const Workload& workload, const std::string& mode, const attention::Policy* policy);

/// Fills speedup: the fastest row of mode full over each row. All rows are of one workload.
void compare_with_dense(Rows& rows);

}  // namespace sparsereel::app::bench
