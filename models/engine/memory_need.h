// Estimates the memory for a video and the weights that make it, before anything large is allocated. The estimate comes
// first because Linux kills a process when memory runs out.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/request.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/summary.h"

namespace sparsereel::models {

/// The form in which a pipeline holds its transformers in memory.
struct Loading {
  c10::Device device;
  WeightFormat format;
  bool offload = false;
  std::optional<MemoryPlan> plan = {};  // where weights stay, if that is decided
};

/// Bytes and number of the weights of a model's largest transformer. Other components do not matter: a text encoder
/// that does not fit is streamed layer by layer, and the transformer is freed before decoding.
struct WeightNeed {
  double host = 0;    // bytes of the host's memory; mapped files do not count, because the kernel can drop their pages
                      // and read them again
  double device = 0;  // bytes of the GPU's memory; 0 on a CPU
  double parameters = 0;
};
WeightNeed weight_need(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading);

/// Returns the options with which the weights would fit into memory ("dtype bf16", "offload").
std::vector<std::string> lighter_loadings(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading);

/// Sizes in bytes, as doubles, which cannot overflow.
struct MemoryNeed {
  double host = 0;
  double device = 0;        // 0 if the device is the host
  double cache = 0;         // bytes on the run's device that a run without a step cache would save
  WeightNeed weights = {};  // included in the sizes above
};

/// Returns a lower bound of the memory for making the video. Most temporaries are left out, so that no video that would
/// work is refused. A step cache counts at its full size, which it reaches at the third computed step at the latest.
/// `ranks` is the number of ranks that make the video together; each has its own device memory, and all share the
/// host's memory.
MemoryNeed least_memory(const Plan& plan, bool decode, const ModelSpec& spec, c10::Device device, c10::ScalarType dtype,
                        const WeightNeed& weights = {}, int64_t ranks = 1);

/// Throws Error (bad input) if this process cannot obtain the memory. `lighter` returns lighter_loadings(). It is
/// called only if smaller weights would help.
void check_memory(const Plan& plan, const MemoryNeed& need, c10::Device device,
                  const std::function<std::vector<std::string>()>& lighter = {});

/// The bytes that a stage is likely to take, and the remedy if they are not available.
struct StageEstimate {
  std::string stage;                      // "text", "image", "denoise", "decode"
  uint64_t weights = 0, activations = 0;  // bytes on the run's device
  uint64_t host = 0;                      // bytes of host memory in addition; 0 if the device is the host
  bool in_pieces = false;                 // the stage works layer by layer or in tiles, and needs less memory
  uint64_t least = 0;                     // bytes that the stage needs if it works in pieces
  std::string remedy = {};                // tells the user what helps if memory is short; empty if memory suffices

  uint64_t total() const { return weights + activations; }
};

/// The formats in which a run holds a model.
struct RunFormat {
  Loading transformer;
  WeightFormat text;
  c10::ScalarType vae, encoder;  // dtypes for decoding and for encoding images
};

/// Returns the stages of making the plan's video: text, image (if the plan has images), denoise, decode. `ranks` is the
/// number of ranks that make the video together, each on its own GPU.
std::vector<StageEstimate> likely_stages(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan,
                                         const RunFormat& format, int64_t ranks = 1);

/// Estimates the memory of runs on a large GPU: in bf16, in fp32 and, if any weights can be in 8 bits, in bf16 with
/// 8-bit weights. Nothing is tiled, and guidance passes are batched. Includes estimates for each of several GPUs that
/// make a video together.
std::vector<MemoryEstimate> likely_memory(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size);

}  // namespace sparsereel::models
