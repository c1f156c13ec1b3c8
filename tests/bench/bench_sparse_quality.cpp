// bench_sparse_quality MODEL PROMPTS_FILE [STEPS [PROMPTS]]: what sparse attention costs in quality. For each prompt
// one video with full attention and one for every block selection and token order, same seed; prints sparsity, relative
// L1 of attention, PSNR and luma SSIM of the frames as a Markdown table.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/bench/quality.h"
#include "hilbert/error.h"
#include "models/pipeline.h"
#include "tests/bench/program.h"

namespace {

using sparsereel::attention::Mode;
using sparsereel::hilbert::TokenOrder;
namespace bench = sparsereel::app::bench;

constexpr double kEqual = 120;  // dB, for frames without a difference

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
      const double quality = bench::psnr(result.frames, full).value_or(kEqual);
      row.sparsity += statistics.sparsity();
      row.relative_l1 += statistics.sum_relative_l1 / static_cast<double>(statistics.calls);
      row.psnr += quality;
      row.lowest_psnr = std::min(row.lowest_psnr, quality);
      row.ssim += bench::ssim(result.frames, full, at::kCPU);
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
