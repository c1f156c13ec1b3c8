// Judges frames by their largest value and their number.
#include "models/engine/frames.h"

#include <ATen/ATen.h>

#include <cmath>

#include "hilbert/error.h"

namespace sparsereel::models {

std::string nan_remedy(at::ScalarType dtype) {
  std::string damaged = "check that the checkpoint's weights are whole";
  if (dtype == at::kFloat) return damaged;
  return std::string("try dtype fp32") + (dtype == at::kHalf ? " or bf16" : "") + ", or " + damaged;
}

void check_numbers(const at::Tensor& frames, at::ScalarType dtype) {
  if (!std::isfinite(frames.max().item<float>()))  // NaN where any value is
    throw run_failure("the decoder's frames hold NaN", nan_remedy(dtype));
}

std::string defect(const at::Tensor& frames) {
  return frames.max().item<float>() < 2.0F / 255 ? "is black" : "";
}

std::string frame_count_warning(const Plan& plan) {
  if (plan.decoded_frames == plan.num_frames) return {};
  return "the decoder makes " + std::to_string(plan.decoded_frames) + " frames where " +
         std::to_string(plan.num_frames) + " were asked for, as the reference does for an even number of latent frames";
}

}  // namespace sparsereel::models
