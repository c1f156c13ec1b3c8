// How near frames are to a reference: PSNR, SSIM and MS-SSIM.
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

/// The smaller side of frames that have an MS-SSIM: of halves of halves at its fifth scale a window still fits in.
constexpr int64_t kLeastOfMsSsim = 176;

/// Multi-scale SSIM (Wang, Simoncelli and Bovik, Asilomar 2003, equation 7) of luma in the same windows: each scale has
/// the mean of each 2 x 2 pixels of the one before; the product of the scales' contrast and structure terms and of the
/// last one's luminance, to the paper's powers, a negative term counting as 0; the mean over frames. Nothing where a
/// side is below kLeastOfMsSsim.
std::optional<double> ms_ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

constexpr double kEqualPsnr = 100;  // dB, from which frames count as equal

/// PSNR and SSIM, of frames that are equal kEqualPsnr and 1: numbers that can be averaged.
struct Nearness {
  double psnr = 0, ssim = 0;
};
Nearness nearness(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

/// sum |a - b| / sum |b|
double relative_l1(const at::Tensor& a, const at::Tensor& b);

}  // namespace sparsereel::app
