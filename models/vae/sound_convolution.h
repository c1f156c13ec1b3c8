// Convolutions along the time of a sound [B, channels, length], in fp32 without rounding to TF32.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// How the kernel moves along the sound. `padding` is the number of zeros on either side of the sound.
struct SoundSteps {
  int64_t padding = 0, stride = 1, dilation = 1;
};

/// Convolves x [B, in, length] with weight [out, in, kernel]. bias [out] may be undefined.
at::Tensor convolve_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const SoundSteps& steps);

/// The transposed convolution of x [B, in, length] with weight [in, out, kernel]. Each element of x adds a kernel to
/// the result, `stride` elements after the kernel of the previous element. `padding` elements at either end of the
/// result are left out.
at::Tensor spread_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const SoundSteps& steps);

}  // namespace sparsereel::models
