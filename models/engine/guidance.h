// Classifier-free guidance (Ho and Salimans, arXiv 2207.12598): the denoiser's passes of one step, and how their
// predictions become one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "models/parallel/group.h"
#include "models/request/conditioning.h"
#include "models/request/request.h"

namespace sparsereel::models {

class Guidance {
 public:
  /// dynamic: the scale grows over the steps.
  Guidance(double scale, bool dynamic, int64_t num_inference_steps, GuidancePasses passes)
      : scale_(scale), dynamic_(dynamic), num_inference_steps_(num_inference_steps), passes_(passes) {}

  /// A forward of the denoiser: latents [B, ..] and B passes -> predictions [B, ..].
  using Denoise = std::function<at::Tensor(const at::Tensor& latents, const Conditioning& conditioning)>;

  /// latents [1, ..]; conditioning of the passes of the negative prompt and the prompt, or of the prompt's alone, whose
  /// prediction is then the result. ranks: each of which computes the pass of its number; null: this one computes all.
  /// fp32 [1, ..], the same bits on all ranks.
  at::Tensor predict(const at::Tensor& latents, const Conditioning& conditioning, double timestep,
                     const Denoise& denoise, Group* ranks = nullptr) const;
  double scale(double timestep) const;

 private:
  double scale_;
  bool dynamic_;
  int64_t num_inference_steps_;
  GuidancePasses passes_;
};

}  // namespace sparsereel::models
