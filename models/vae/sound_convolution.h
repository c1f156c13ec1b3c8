// Convolutions along the time of a sound [B, channels, length], in fp32: no product is rounded to TF32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// How the kernel moves along the sound, and how many zeros surround the sound on either side.
struct SoundSteps {
  int64_t padding = 0, stride = 1, dilation = 1;
};

/// Convolves x [B, in, length] with weight [out, in, kernel]. bias [out] may be undefined.
at::Tensor convolve_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const SoundSteps& steps);

/// Convolves x [B, in, length] with weight [in, out, kernel] in the other direction: each element of x adds a kernel to
/// the result, `stride` elements behind the one before. `padding` elements at either end are left out.
at::Tensor spread_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const SoundSteps& steps);

}  // namespace sparsereel::models
