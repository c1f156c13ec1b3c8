// Classifier-free guidance (Ho and Salimans, arXiv 2207.12598): runs the transformer's passes of one step and combines
// their predictions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "models/parallel/group.h"
#include "models/request/conditioning.h"
#include "models/request/request.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

class Guidance {
 public:
  /// With `dynamic`, the guidance scale varies with the timestep by the formula of diffusers' use_dynamic_cfg.
  Guidance(double scale, bool dynamic, int64_t num_inference_steps, GuidancePasses passes)
      : scale_(scale), dynamic_(dynamic), num_inference_steps_(num_inference_steps), passes_(passes) {}

  /// Runs one forward pass of the transformer on latents [B, ..], for B guidance passes. Returns predictions [B, ..].
  using Denoise = std::function<Prediction(const at::Tensor& latents, const Conditioning& conditioning)>;

  /// Returns the guided prediction, fp32 [1, ..], with the same bits on all ranks. `latents` are [1, ..].
  /// `conditioning` holds the negative prompt and the prompt; if it holds only the prompt, the prediction for the
  /// prompt is returned. Rank i of `ranks` computes pass i. If `ranks` is null, this rank computes all passes.
  Prediction predict(const at::Tensor& latents, const Conditioning& conditioning, double timestep,
                     const Denoise& denoise, Group* ranks = nullptr) const;
  double scale(double timestep) const;

 private:
  double scale_;
  bool dynamic_;
  int64_t num_inference_steps_;
  GuidancePasses passes_;
};

}  // namespace sparsereel::models
