// What a step of denoising is expected to take on several GPUs: its computing, divided, and what they exchange. No
// torch.
#pragma once

#include <cstdint>

namespace sparsereel::app {

/// A video on one GPU, in 16 bits.
struct VideoCost {
  double tokens = 0;  // of one pass
  int64_t layers = 0, heads = 0;
  double channels = 0;  // of all heads
  int64_t passes = 1;   // of guidance, all of which a step computes
  double step_ms = 0;   // of all passes; 0: unknown
};

struct RanksCost {
  int64_t passes = 1;      // of guidance side by side
  int64_t ulysses = 1;     // GPUs that share the tokens of a pass, and in attention its heads
  int64_t most_heads = 0;  // of one GPU
  double megabytes = 0;    // that a GPU sends in a layer: q, k, v and the output
  double exchange_ms = 0;  // of a step
  double step_ms = 0;      // 0: unknown
  double speedup = 0;      // likewise
};

/// Cards go to guidance passes first, then to the tokens of a pass. `speed`: gigabytes a second that a GPU sends while
/// it receives as many. A call takes 0.05 ms before the first byte, and a small reduction, of which a layer has two,
/// 0.04: on hosts of four H100 with NVLink all-to-alls of q, k and v of 38 to 435 MB were within 10% of this.
RanksCost cost_over_ranks(const VideoCost& video, int64_t gpus, double speed);

}  // namespace sparsereel::app
