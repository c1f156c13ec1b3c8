// How near frames are to a reference: PSNR and SSIM.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace sparsereel::app {

/// frames, reference: fp32 [F, H, W, 3] in 0..1. Decibels over all values; nothing where the two are equal.
std::optional<double> psnr(const at::Tensor& frames, const at::Tensor& reference);

/// Structural similarity (Wang et al., IEEE Transactions on Image Processing 13(4), 2004, equation 13) of luma, 11 x 11
/// Gaussian windows of deviation 1.5 that lie inside the frame; the mean over windows and frames. H and W are at least
/// 11. Computed on `device`, a few frames at a time.
double ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

constexpr double kEqualPsnr = 100;  // dB, from which frames count as equal

/// PSNR and SSIM, of frames that are equal kEqualPsnr and 1: numbers that can be averaged.
struct Nearness {
  double psnr = 0, ssim = 0;
};
Nearness nearness(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

/// sum |a - b| / sum |b|
double relative_l1(const at::Tensor& a, const at::Tensor& b);

}  // namespace sparsereel::app
