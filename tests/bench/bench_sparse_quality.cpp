// bench_sparse_quality MODEL PROMPTS_FILE [STEPS [PROMPTS]]: what sparse attention costs in quality. For each prompt
// one video with full attention and one for every block selection and token order, same seed; prints sparsity, relative
// L1 of attention, PSNR and luma SSIM of the frames as a Markdown table.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/pipeline.h"
#include "tests/bench/program.h"

namespace {

using sparsereel::attention::Mode;
using sparsereel::hilbert::TokenOrder;

/// Peak signal-to-noise ratio in dB of frames in 0..1, over the whole video.
double psnr(const at::Tensor& a, const at::Tensor& b) {
  return -10 * std::log10((a - b).square().mean().item<double>() + 1e-12);
}

/// Mean structural similarity of the luma (Wang et al. 2004): 11 x 11 Gaussian window, sigma 1.5, K1 = 0.01, K2 = 0.03.
double ssim(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = at::arange(11, at::kFloat) - 5;
  const at::Tensor line = at::softmax(-x.square() / (2 * 1.5 * 1.5), 0);
  const at::Tensor window = at::outer(line, line).view({1, 1, 11, 11});
  const at::Tensor weights = at::tensor({0.2126F, 0.7152F, 0.0722F});
  const auto blur = [&](const at::Tensor& image) { return at::conv2d(image, window); };
  const at::Tensor p = at::matmul(a, weights).unsqueeze(1), q = at::matmul(b, weights).unsqueeze(1);  // [F, 1, H, W]
  const at::Tensor mean_p = blur(p), mean_q = blur(q);
  const at::Tensor var_p = blur(p * p) - mean_p.square(), var_q = blur(q * q) - mean_q.square();
  const at::Tensor covariance = blur(p * q) - mean_p * mean_q;
  constexpr double c1 = 0.01 * 0.01, c2 = 0.03 * 0.03;
  const at::Tensor map = (2 * mean_p * mean_q + c1) * (2 * covariance + c2) /
                         ((mean_p.square() + mean_q.square() + c1) * (var_p + var_q + c2));
  return map.mean().item<double>();
}

struct Row {
  double topk;
  double similarity;
  TokenOrder order;
  double sparsity = 0, relative_l1 = 0, psnr = 0, ssim = 0, lowest_psnr = 1e9;
};

/// The method's defaults, a sparser one, and the tiny model's own (configs/tiny.yaml), each in two token orders.
std::vector<Row> make_rows() {
  constexpr double never = sparsereel::attention::HeadPolicy{}.similarity;
  std::vector<Row> rows;
  constexpr std::array<std::pair<double, double>, 3> selections{{{0.5, never}, {0.3, never}, {0.5, 0.5}}};
  for (const auto& [topk, similarity] : selections) {
    for (const TokenOrder order : {TokenOrder::hilbert, TokenOrder::native})
      rows.push_back({.topk = topk, .similarity = similarity, .order = order});
  }
  return rows;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPTS_FILE [STEPS [PROMPTS]]\n", argv[0]);
    return 2;
  }
  const int64_t steps = argc > 3 ? std::atoll(argv[3]) : 25;
  const size_t limit = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 8;
  std::vector<std::string> prompts;
  std::ifstream file(argv[2]);
  for (std::string line; prompts.size() < limit && std::getline(file, line);) {
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty())
    throw sparsereel::bad_input(std::string(argv[2]) + " holds no prompt", "give a text file with a prompt a line");

  const auto pipeline = sparsereel::models::Pipeline::open(argv[1], "cpu", "fp32");
  std::vector<Row> rows = make_rows();
  for (const std::string& prompt : prompts) {
    sparsereel::models::GenerateRequest request;
    request.prompt = prompt;
    request.num_inference_steps = steps;
    const at::Tensor full = pipeline->generate(request).frames;
    request.attention_mode = Mode::check;
    for (Row& row : rows) {
      request.attention_policy.defaults.topk = row.topk;
      request.attention_policy.defaults.similarity = row.similarity;
      request.token_order = row.order;
      const auto result = pipeline->generate(request);
      const auto& statistics = result.attention.statistics;
      const double quality = psnr(result.frames, full);
      row.sparsity += statistics.sparsity();
      row.relative_l1 += statistics.sum_relative_l1 / static_cast<double>(statistics.calls);
      row.psnr += quality;
      row.lowest_psnr = std::min(row.lowest_psnr, quality);
      row.ssim += ssim(result.frames, full);
    }
    std::fprintf(stderr, "%s\n", prompt.c_str());
  }
  const double n = static_cast<double>(prompts.size());
  std::printf("%zu prompts, %lld steps, seed 42, means over prompts\n\n", prompts.size(),
              static_cast<long long>(steps));
  std::printf(
      "| topk | similarity | token order | sparsity | relative L1 of attention | PSNR dB (lowest) | SSIM "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    std::printf("| %.1f | %.1f | %s | %.3f | %.4f | %.2f (%.2f) | %.4f |\n", row.topk, row.similarity,
                std::string(name(row.order)).c_str(), row.sparsity / n, row.relative_l1 / n, row.psnr / n,
                row.lowest_psnr, row.ssim / n);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const c10::InferenceMode guard;
  return sparsereel::bench::guarded([&] { return run(argc, argv); });
}
