// Collects MemoryFacts: sizes from headers of weight files, and the machine's memory and speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/engine/memory_decision.h"
#include "models/engine/memory_need.h"

namespace sparsereel::models {

class Vae;

/// The facts about a model that are the same for all its videos. Bytes are of weights, in the formats of a run.
struct ModelFacts {
  double block = 0, rest = 0;  // of the largest block of a transformer, and of what lies outside of its blocks
  double text = 0, vae = 0;
  std::shared_ptr<const Vae> decoder;  // without weights; it tells how much memory decoding needs
  uint64_t element = 0;                // bytes of an element of a step's tensors
};
/// Reads the facts from the headers of the weight files.
ModelFacts model_facts(const Checkpoint& checkpoint, const ModelSpec& spec, const RunFormat& format);

/// Returns the facts about a video and its model. The facts about the machine stay zero. `ranks` is the number of ranks
/// that make the video together.
MemoryFacts video_facts(const ModelFacts& model, const ModelSpec& spec, const Plan& plan, int64_t ranks = 1);

/// Returns the formats in which a GPU would hold the model in this dtype, for machines without a GPU.
RunFormat format_on_a_gpu(const ModelSpec& spec, c10::ScalarType dtype, WeightFormat weights, WeightFormat text);

/// Adds the host's memory. The `ranks` and other processes of this program share it equally.
void add_host(MemoryFacts& facts, int64_t ranks = 1);

/// Adds this GPU's rate of copies, and the seconds of computing in a step, which follow from the GPU's rate of matrix
/// products. Measures each rate once, which takes milliseconds. The rates stay unknown if the GPU has too little free
/// memory to measure them.
void add_rates(MemoryFacts& facts, const Plan& plan, const ModelSpec& spec, double parameters, c10::Device device,
               c10::ScalarType dtype, int64_t ranks = 1);

/// Returns where the weights stay when a model makes a video of this size by its defaults. If `device` is a GPU, uses
/// its free memory and speed, and `gibibytes` has no effect. If `device` is a CPU, assumes a GPU with `gibibytes` of
/// memory and unknown speed.
MemoryPlan plan_for_defaults(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                             double gibibytes, c10::Device device = c10::kCPU);

}  // namespace sparsereel::models
