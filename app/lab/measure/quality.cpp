// Computes PSNR, SSIM and MS-SSIM with torch's operators.
#include "app/lab/measure/quality.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace sparsereel::app {
namespace {

constexpr int64_t kWindow = 11;
constexpr double kDeviation = 1.5;
constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;  // (K1 L)^2 and (K2 L)^2 of the paper of SSIM, for L = 1
constexpr int64_t kFramesAtOnce = 8;
/// The powers of the paper of MS-SSIM, the finest scale first.
constexpr std::array<double, 5> kPowers = {0.0448, 0.2856, 0.3001, 0.2363, 0.1333};
static_assert(kLeastOfMsSsim >> (kPowers.size() - 1) == kWindow);

at::Tensor gaussian(at::Device device) {
  const at::Tensor offsets = at::arange(kWindow, at::TensorOptions().dtype(at::kDouble).device(device)) - kWindow / 2;
  const at::Tensor weights = at::exp(-offsets.square() / (2 * kDeviation * kDeviation));
  return weights / weights.sum();
}

/// Returns the weighted means of the windows of x [N, 1, H, W]: [N, 1, H - 10, W - 10].
at::Tensor window_means(const at::Tensor& x, const at::Tensor& weights) {
  return at::conv2d(at::conv2d(x, weights.view({1, 1, kWindow, 1})), weights.view({1, 1, 1, kWindow}));
}

/// The terms of SSIM, averaged over the windows of each frame: [F].
struct Similarity {
  at::Tensor structure;  // the term of contrast and structure
  at::Tensor whole;      // the product of `structure` and the term of luminance
};

/// x and y are [F, 1, H, W] in fp64: the variance of a flat window is a small difference of squares, of which fp32
/// would keep few digits.
Similarity compare(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weights) {
  const at::Tensor mx = window_means(x, weights), my = window_means(y, weights);
  const at::Tensor vx = window_means(x * x, weights) - mx * mx, vy = window_means(y * y, weights) - my * my;
  const at::Tensor covariance = window_means(x * y, weights) - mx * my;
  const at::Tensor structure = (2 * covariance + kC2) / (vx + vy + kC2);
  const at::Tensor luminance = (2 * mx * my + kC1) / (mx * mx + my * my + kC1);
  return {structure.mean({1, 2, 3}), (luminance * structure).mean({1, 2, 3})};
}

/// Returns the SSIM of each frame.
at::Tensor ssim_of(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weights) {
  return compare(x, y, weights).whole;
}

at::Tensor ms_ssim_of(at::Tensor x, at::Tensor y, const at::Tensor& weights) {
  at::Tensor product = at::ones({x.size(0)}, x.options());
  for (const double& power : kPowers) {
    const Similarity scale = compare(x, y, weights);
    const bool last = &power == &kPowers.back();
    product *= (last ? scale.whole : scale.structure).clamp_min(0).pow(power);
    if (last) break;
    x = at::avg_pool2d(x, {2, 2});
    y = at::avg_pool2d(y, {2, 2});
  }
  return product;
}

/// Returns the mean of `of` over the luma of all frames, computed for a few frames at a time.
template <typename Of>
double mean_of_luma(const at::Tensor& frames, const at::Tensor& reference, at::Device device, const Of& of) {
  const at::Tensor weights = gaussian(device);
  const at::Tensor luma = at::tensor({0.2126, 0.7152, 0.0722}).to(device);  // BT.709
  double sum = 0;
  for (int64_t start = 0; start < frames.size(0); start += kFramesAtOnce) {
    const int64_t count = std::min(kFramesAtOnce, frames.size(0) - start);
    const auto images = [&](const at::Tensor& all) {
      return at::matmul(all.narrow(0, start, count).to(device, at::kDouble), luma).unsqueeze(1);
    };
    sum += of(images(frames), images(reference), weights).sum().template item<double>();
  }
  return sum / static_cast<double>(frames.size(0));
}

}  // namespace

std::optional<double> psnr(const at::Tensor& frames, const at::Tensor& reference) {
  const double error = (frames - reference).square().mean(at::kDouble).item<double>();
  if (error == 0) return {};
  return -10 * std::log10(error);
}

double ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device) {
  return mean_of_luma(frames, reference, device, ssim_of);
}

std::optional<double> ms_ssim(const at::Tensor& frames, const at::Tensor& reference, at::Device device) {
  if (std::min(frames.size(1), frames.size(2)) < kLeastOfMsSsim) return {};
  return mean_of_luma(frames, reference, device, ms_ssim_of);
}

Fidelity fidelity(const at::Tensor& frames, const at::Tensor& reference, at::Device device) {
  return {.psnr = std::min(psnr(frames, reference).value_or(kEqualPsnr), kEqualPsnr),
          .ssim = std::min(ssim(frames, reference, device), 1.0)};
}

double relative_l1(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor expected = b.to(at::kDouble);
  const double size = expected.abs().sum().item<double>();
  const double error = (a.to(at::kDouble) - expected).abs().sum().item<double>();
  return size > 0 ? error / size : error;
}

}  // namespace sparsereel::app
