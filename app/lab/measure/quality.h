// Measures the fidelity of frames to a reference: PSNR, SSIM and MS-SSIM.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace sparsereel::app {

/// Returns the PSNR in dB over all values; nothing if the frames equal the reference. In all functions, `frames` and
/// `reference` are fp32 [F, H, W, 3] in 0..1.
std::optional<double> psnr(const at::Tensor& frames, const at::Tensor& reference);

/// Returns the structural similarity of luma (Wang et al., IEEE Transactions on Image Processing 13(4), 2004, equation
/// 13), as the mean over windows and frames. Windows are 11 x 11 Gaussians of deviation 1.5 inside the frame, so H and
/// W must be at least 11. Computes a few frames at a time on `device`.
double ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

/// The least width and height, in pixels, of frames that have an MS-SSIM: a window must fit into the fifth scale, after
/// four halvings.
constexpr int64_t kLeastOfMsSsim = 176;

/// Returns the multi-scale SSIM of luma (Wang, Simoncelli and Bovik, Asilomar 2003, equation 7) in the windows of
/// ssim(), as the mean over the frames. Each scale averages 2 x 2 pixels of the previous one. The result is the product
/// of the contrast and structure terms of all scales and of the luminance term of the last scale, each raised to the
/// paper's power. Negative terms count as 0. Returns nothing if width or height is below kLeastOfMsSsim.
std::optional<double> ms_ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

constexpr double kEqualPsnr = 100;  // dB; frames with this PSNR or more count as equal

/// PSNR and SSIM as numbers that can be averaged: kEqualPsnr and 1 for equal frames.
struct Fidelity {
  double psnr = 0, ssim = 0;
};
Fidelity fidelity(const at::Tensor& frames, const at::Tensor& reference, at::Device device);

/// Returns sum |a - b| / sum |b|, or sum |a - b| if all of b is 0.
double relative_l1(const at::Tensor& a, const at::Tensor& b);

}  // namespace sparsereel::app
