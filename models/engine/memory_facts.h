// Collects the facts by which memory is divided: sizes from headers, and what the machine has.
#pragma once

#include <cstdint>
#include <vector>

#include "models/engine/memory_decision.h"
#include "models/engine/memory_need.h"

namespace sparsereel::models {

/// Returns the facts about a video and its model. The facts about the machine stay zero. `ranks` is the number of ranks
/// that make the video together.
MemoryFacts video_facts(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan, const RunFormat& format,
                        int64_t ranks = 1);

/// Returns the formats in which a GPU would hold the model in this dtype, for machines without a GPU.
RunFormat format_on_a_gpu(const ModelSpec& spec, c10::ScalarType dtype, WeightFormat weights, WeightFormat text);

/// Adds the host's memory, which several ranks and other processes of this program share.
void add_host(MemoryFacts& facts, int64_t ranks = 1);

/// Adds the rates of this GPU, and with them the seconds that a step computes. Measures each once, in milliseconds.
/// Leaves them unknown if the GPU has too little memory left to measure them.
void add_rates(MemoryFacts& facts, const Plan& plan, const ModelSpec& spec, double parameters, c10::Device device,
               c10::ScalarType dtype, int64_t ranks = 1);

/// Returns where the weights stay when a model makes a video of this size by its defaults. If `device` is a GPU, uses
/// its free memory and speed, and `gibibytes` has no effect. If it is a CPU, assumes a GPU with this much memory and
/// unknown speed.
MemoryPlan plan_for_defaults(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                             double gibibytes, c10::Device device = c10::kCPU);

}  // namespace sparsereel::models
