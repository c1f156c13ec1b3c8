// Whether a video and the weights that make it can fit into memory at all, asked before anything large is allocated: a
// Linux that runs out of memory kills instead of refusing. And what they take as a rule.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/plan.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/summary.h"

namespace sparsereel::models {

/// How a pipeline holds its transformers.
struct Loading {
  c10::Device device;
  WeightFormat format;
  bool offload = false;
};

/// Bytes of the weights of a model's largest transformer, and how many they are. A text encoder that does not fit
/// passes through layer by layer, and the transformer is gone before the decoder comes.
struct WeightNeed {
  double host = 0;    // without what stays the files' mapping, which the kernel can drop and read again
  double device = 0;  // 0 where the device is the host
  double parameters = 0;
};
WeightNeed weight_need(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading);

/// Other ways to load the model, by their fields ("dtype bf16", "offload"), for which there is memory.
std::vector<std::string> lighter_loadings(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading);

/// Bytes; doubles, which no size overflows.
struct MemoryNeed {
  double host = 0;
  double device = 0;        // 0 where the device is the host
  double cache = 0;         // of one of them: what would not be needed without a cache of steps
  WeightNeed weights = {};  // part of them
};

/// What making the video holds at its worst moment at the very least: most temporaries are left out, so that nothing
/// that would work is refused. A cache counts as one by which at least three steps are computed. ranks: that make it
/// together; of a device each has its own, of the host all have the same memory.
MemoryNeed least_memory(const Plan& plan, bool decode, const ModelSpec& spec, c10::Device device, c10::ScalarType dtype,
                        const WeightNeed& weights = {}, int64_t ranks = 1);

/// Throws Error (bad input) where this process cannot come to have what is needed. `lighter`: of lighter_loadings();
/// asked for where the weights are part of the need.
void check_memory(const Plan& plan, const MemoryNeed& need, c10::Device device,
                  const std::function<std::vector<std::string>()>& lighter = {});

/// The bytes that one stage of a run is likely to take, and whether there is memory for it.
struct StageEstimate {
  std::string stage;                      // "text", "image", "denoise", "decode"
  uint64_t weights = 0, activations = 0;  // on the run's device
  uint64_t host = 0;                      // besides, in the host's memory; 0 where the device is the host
  bool in_pieces = false;                 // layer by layer, or in tiles: it makes do with less,
  uint64_t least = 0;                     // but needs this much
  std::string remedy = {};                // what would help where there is not enough memory; empty: there is

  uint64_t total() const { return weights + activations; }
};

/// How a run holds a model.
struct RunFormat {
  Loading transformer;
  WeightFormat text;
  c10::ScalarType vae, encoder;  // dtypes of decoding, and of encoding images
};

/// The stages of making the plan's video in their order, against the memory that this process can come to have.
/// ranks: that make it together, each on a GPU of its own.
std::vector<StageEstimate> likely_stages(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan,
                                         const RunFormat& format, int64_t ranks = 1);

/// What a run takes that has the memory which it asks for, nothing in tiles: in bf16, in fp32, and in bf16 with what
/// fits in 8 bits, where anything does. Both passes of guidance at once; and what each of several GPUs takes that make
/// the video together.
std::vector<MemoryEstimate> likely_memory(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size);

}  // namespace sparsereel::models
