// The state of a denoising between two steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attention/call_policy.h"

namespace sparsereel::models {

/// A denoising that continues from this state gives the same bits as one that never stopped. All tensors are on the
/// CPU.
struct DenoisingState {
  int64_t step = 0;                             // steps done so far
  at::Tensor latents;                           // in the model's layout
  at::Tensor sound{};                           // latents of the sound; undefined if the model makes none
  std::map<std::string, at::Tensor> scheduler;  // Sampler::state()
  std::map<std::string, at::Tensor> cache;      // StepCache::state()
  at::Tensor generator;                         // state of the random generator, uint8 in libtorch's form
  // The next three members are copies of AttentionRun's members of the same names, after the steps done so far.
  std::vector<std::vector<attention::Statistics>> per_step;
  std::vector<int64_t> redone_steps;
  std::string kernel;
  std::vector<std::string> warnings;
};

}  // namespace sparsereel::models
