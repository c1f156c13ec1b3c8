// bench_sparse_quality MODEL PROMPTS_FILE [STEPS [PROMPTS [PROFILE...]]]: what sparse attention costs in quality. For
// each prompt one video with full attention and one for every block selection and token order, same seed; prints
// sparsity, relative L1 of attention, PSNR and luma SSIM of the frames as a Markdown table. With profiles: topk 0.5 and
// the profiles.
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
#include "attention/profile.h"
#include "hilbert/error.h"
#include "models/pipeline.h"
#include "tests/bench/program.h"

namespace {

using sparsereel::attention::Mode;
using sparsereel::hilbert::TokenOrder;
namespace bench = sparsereel::app::bench;

constexpr double kEqual = 120;  // dB, for frames without a difference

struct Row {
  std::string name;
  sparsereel::attention::Policy policy;
  TokenOrder order = TokenOrder::hilbert;
  double sparsity = 0, relative_l1 = 0, psnr = 0, ssim = 0, lowest_psnr = 1e9;
};

Row selection(double topk, double similarity, TokenOrder order) {
  Row row;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "topk %.1f, similarity %.1f", topk, similarity);
  row.name = text.data();
  row.policy.defaults.topk = topk;
  row.policy.defaults.similarity = similarity;
  row.order = order;
  return row;
}

/// The method's defaults, a sparser one, and the tiny model's own (configs/tiny.yaml), each in two token orders.
std::vector<Row> make_rows() {
  constexpr double never = sparsereel::attention::HeadPolicy{}.similarity;
  std::vector<Row> rows;
  constexpr std::array<std::pair<double, double>, 3> selections{{{0.5, never}, {0.3, never}, {0.5, 0.5}}};
  for (const auto& [topk, similarity] : selections) {
    for (const TokenOrder order : {TokenOrder::hilbert, TokenOrder::native})
      rows.push_back(selection(topk, similarity, order));
  }
  return rows;
}

std::vector<Row> profile_rows(const std::vector<std::string>& files) {
  std::vector<Row> rows = {selection(0.5, sparsereel::attention::HeadPolicy{}.similarity, TokenOrder::hilbert)};
  for (const std::string& file : files) {
    Row row;
    row.name = file;
    row.policy = sparsereel::attention::policy_of(sparsereel::attention::read_profile(file));
    rows.push_back(row);
  }
  return rows;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL PROMPTS_FILE [STEPS [PROMPTS [PROFILE...]]]\n", argv[0]);
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
  std::vector<Row> rows = argc > 5 ? profile_rows({argv + 5, argv + argc}) : make_rows();
  for (const std::string& prompt : prompts) {
    sparsereel::models::GenerateRequest request;
    request.prompt = prompt;
    request.num_inference_steps = steps;
    const at::Tensor full = pipeline->generate(request).frames;
    request.attention_mode = Mode::check;
    for (Row& row : rows) {
      request.attention_policy = row.policy;
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
      "| blocks kept | token order | sparsity | relative L1 of attention | PSNR dB (lowest) | SSIM "
      "|\n|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    std::printf("| %s | %s | %.3f | %.4f | %.2f (%.2f) | %.4f |\n", row.name.c_str(),
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
