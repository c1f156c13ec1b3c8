// Estimates the time of a denoising step on several GPUs: their computation and their exchanges. Does not use torch.
#pragma once

#include <cstdint>

namespace sparsereel::app {

/// The cost of a step of a video on one GPU, in 16 bits.
struct VideoCost {
  double tokens = 0;  // tokens of one pass
  int64_t layers = 0, heads = 0;
  double channels = 0;  // channels of all heads together
  int64_t passes = 1;   // guidance passes, all of which a step computes
  double step_ms = 0;   // milliseconds of all passes; 0 if unknown
};

struct RanksCost {
  int64_t passes = 1;      // guidance passes that different GPUs compute at the same time
  int64_t ulysses = 1;     // GPUs that share the tokens of a pass, and the heads of its attention
  int64_t most_heads = 0;  // the largest number of heads that a GPU computes
  double megabytes = 0;    // MB that a GPU sends in a layer: q, k, v and the output
  double exchange_ms = 0;  // milliseconds of the exchanges in a step
  double step_ms = 0;      // 0 if unknown
  double speedup = 0;      // 0 if unknown
};

/// Returns the estimate. An even number of GPUs is first divided among two groups of guidance passes, if there are
/// several passes; the GPUs of a group share the tokens of its passes. `speed` is the GB/s that a GPU sends while it
/// receives as much. An exchange takes 0.05 ms before the first byte, and each of a layer's two small reductions takes
/// 0.04 ms. On hosts of four H100 with NVLink, all-to-alls of q, k and v of 38 to 435 MB took within 10% of this
/// estimate.
RanksCost cost_over_ranks(const VideoCost& video, int64_t gpus, double speed);

}  // namespace sparsereel::app
