// torch convolves on a CPU. On a GPU, cuDNN's operators are called directly, because torch's functions obey a
// process-wide setting that may allow TF32.
#include "models/vae/sound_convolution.h"

#include <ATen/ATen.h>

#include <array>

namespace sparsereel::models {
namespace {

bool has_cudnn(const at::Tensor& x) {
  return x.is_cuda() && at::globalContext().userEnabledCuDNN() && at::Context::hasCuDNN();
}

/// cuDNN convolves pictures, so a sound becomes a picture with one row.
struct PictureSteps {
  std::array<int64_t, 2> padding, stride, dilation;

  explicit PictureSteps(const SoundSteps& steps)
      : padding{0, steps.padding}, stride{1, steps.stride}, dilation{1, steps.dilation} {}
};

at::Tensor with_bias(const at::Tensor& picture, const at::Tensor& bias) {
  const at::Tensor x = picture.squeeze(2);
  return bias.defined() ? x + bias.unsqueeze(1) : x;
}

}  // namespace

at::Tensor convolve_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          const SoundSteps& steps) {
  if (!has_cudnn(x)) return at::conv1d(x, weight, bias, steps.stride, steps.padding, steps.dilation);
  const at::Context& settings = at::globalContext();
  const PictureSteps of_picture(steps);
  return with_bias(at::cudnn_convolution(x.unsqueeze(2), weight.unsqueeze(2), of_picture.padding, of_picture.stride,
                                         of_picture.dilation, /*groups=*/1, settings.benchmarkCuDNN(),
                                         settings.deterministicCuDNN(), /*allow_tf32=*/false),
                   bias);
}

at::Tensor spread_sound(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const SoundSteps& steps) {
  if (!has_cudnn(x))
    return at::conv_transpose1d(x, weight, bias, steps.stride, steps.padding, /*output_padding=*/0, /*groups=*/1,
                                steps.dilation);
  const at::Context& settings = at::globalContext();
  const PictureSteps of_picture(steps);
  const std::array<int64_t, 2> none{};
  return with_bias(
      at::cudnn_convolution_transpose(x.unsqueeze(2), weight.unsqueeze(2), of_picture.padding, none, of_picture.stride,
                                      of_picture.dilation, /*groups=*/1, settings.benchmarkCuDNN(),
                                      settings.deterministicCuDNN(), /*allow_tf32=*/false),
      bias);
}

}  // namespace sparsereel::models
