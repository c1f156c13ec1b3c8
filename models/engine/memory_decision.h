// Decides where the weights of a run stay, from plain numbers. No torch, and no state.
#pragma once

#include <cstdint>
#include <optional>

#include "models/request/memory_plan.h"

namespace sparsereel::models {

/// The facts by which decide() chooses. Sizes are in bytes. Zero stands for an unknown rate or time.
struct MemoryFacts {
  double gpu = 0;                        // bytes of GPU memory that this run may use
  double host_free = 0, host_total = 0;  // the host's memory, within the limits of control groups
  int64_t blocks = 0;                    // blocks of the transformer
  double block = 0;                      // weights of the largest block, in the form in which they stay in memory
  double rest = 0;                       // weights of the transformer outside of its blocks; they stay on the GPU
  int64_t experts = 1;                   // transformers that take turns
  double step = 0;                       // tensors of a denoising step and of the step cache
  double text = 0;                       // weights of the text encoder
  double vae = 0, decode = 0;            // weights of the decoder, and the tensors of decoding without tiles
  bool has_tiles = true;                 // decoding in tiles is possible and takes less memory
  int64_t passes = 1;                    // forward passes of a step; each one copies the streamed blocks
  double pinned_rate = 0;                // bytes per second from page-locked memory to the GPU
  double compute = 0;                    // seconds of computing in a step
};

/// Returns the plan that keeps as many weights as possible on the GPU, and then in page-locked memory. At most half of
/// the host's memory is page-locked. A plan for more memory never copies more bytes than a plan for less.
MemoryPlan decide(const MemoryFacts& facts);

/// Returns true if `plan`, from decide(), would leave all weights where they are if the GPU had this many bytes less.
bool is_same_with_less(const MemoryFacts& facts, const MemoryPlan& plan, double bytes);

/// Returns the plan in which no block stays on the GPU, as with `offload on`. It also streams the text encoder, and
/// decodes in tiles if possible.
MemoryPlan decide_without_blocks(const MemoryFacts& facts);

/// Returns the plan in which all blocks stay on the GPU, as with `offload off`.
MemoryPlan decide_with_all_blocks(const MemoryFacts& facts);

/// Returns a plan that needs less GPU memory, after a run with the plan `now` ran out of memory; nothing if there is
/// none.
std::optional<MemoryPlan> smaller(const MemoryFacts& facts, const MemoryPlan& now);

}  // namespace sparsereel::models
