// bench_attention_cpu [REPETITIONS [TOKENS...]]: compares attend() in mode sparse with torch's
// scaled_dot_product_attention on this CPU, for 4 heads with head_dim 64, normally distributed fp32 data and no text.
// Prints a Markdown table of median times. It calls the two functions in turns. The times of attend() include block
// selection and packing.
// SPARSEREEL_ATTENTION_KERNEL=avx2 turns AVX-512 off in attend(), and ATEN_CPU_CAPABILITY=avx2 in torch.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "app/lab/measure/timing.h"
#include "attention/attention.h"
#include "attention/cpu/tile_kernel.h"
#include "tests/bench/program.h"

namespace {

using sparsereel::app::spread;
using sparsereel::app::Spread;
using sparsereel::app::Timer;
using sparsereel::attention::Context;
using sparsereel::attention::Dropped;
using sparsereel::attention::Mode;
using sparsereel::attention::Ranking;
using sparsereel::attention::Result;
using sparsereel::attention::Workspace;
using sparsereel::attention::cpu::chosen_tile_kernel;

constexpr int64_t kHeads = 4, kHeadDim = 64;

/// Runs ten independent chains of fused multiply-adds on registers only. No kernel can compute faster than this.
__attribute__((target("avx512f"))) void fma_avx512(int64_t rounds) {
  using Vec = float __attribute__((vector_size(64)));
  Vec a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{};
  const Vec x = Vec{} + 0.5F;
  for (int64_t n = 0; n < rounds; ++n) {
    asm volatile(
        "vfmadd231ps %10, %10, %0\n\t"
        "vfmadd231ps %10, %10, %1\n\t"
        "vfmadd231ps %10, %10, %2\n\t"
        "vfmadd231ps %10, %10, %3\n\t"
        "vfmadd231ps %10, %10, %4\n\t"
        "vfmadd231ps %10, %10, %5\n\t"
        "vfmadd231ps %10, %10, %6\n\t"
        "vfmadd231ps %10, %10, %7\n\t"
        "vfmadd231ps %10, %10, %8\n\t"
        "vfmadd231ps %10, %10, %9\n\t"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i), "+v"(j)
        : "v"(x));
  }
}

__attribute__((target("avx2,fma"))) void fma_avx2(int64_t rounds) {
  using Vec = float __attribute__((vector_size(32)));
  Vec a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{};
  const Vec x = Vec{} + 0.5F;
  for (int64_t n = 0; n < rounds; ++n) {
    asm volatile(
        "vfmadd231ps %10, %10, %0\n\t"
        "vfmadd231ps %10, %10, %1\n\t"
        "vfmadd231ps %10, %10, %2\n\t"
        "vfmadd231ps %10, %10, %3\n\t"
        "vfmadd231ps %10, %10, %4\n\t"
        "vfmadd231ps %10, %10, %5\n\t"
        "vfmadd231ps %10, %10, %6\n\t"
        "vfmadd231ps %10, %10, %7\n\t"
        "vfmadd231ps %10, %10, %8\n\t"
        "vfmadd231ps %10, %10, %9\n\t"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j)
        : "x"(x));
  }
}

double peak_gflops() {
  const bool avx512 = std::string_view(chosen_tile_kernel().name) == "avx512";
  if (!avx512 && (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0)) return 0;
  constexpr int64_t rounds = 3'000'000;
  const double flops = static_cast<double>(rounds) * 10 * 2 * (avx512 ? 16 : 8) * at::get_num_threads();
  Timer timer(at::kCPU);
  for (int i = 0; i < 7; ++i)
    timer.time([&] {
      at::parallel_for(0, at::get_num_threads(), 1,
                       [&](int64_t, int64_t) { avx512 ? fma_avx512(rounds) : fma_avx2(rounds); });
    });
  return flops / spread(timer.finish()).least / 1e6;
}

void compare(int64_t tokens, double topk, bool means, int repetitions, double peak) {
  at::manual_seed(1);
  const at::Tensor qkv = at::randn({1, tokens, 3, kHeads, kHeadDim});
  const at::Tensor q = qkv.select(2, 0), k = qkv.select(2, 1), v = qkv.select(2, 2);
  Workspace workspace;
  Context context;
  context.mode = Mode::sparse;
  context.policy.defaults.topk = topk;
  context.policy.dropped = means ? Dropped::mean : Dropped::none;
  context.policy.ranking = means ? Ranking::error : Ranking::mass;
  context.policy.cell = 16;
  Result result;
  const auto sparse = [&](int64_t) { result = attend(q, k, v, context, workspace); };
  const auto full = [&](int64_t) {
    at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2));
  };
  Timer timer(at::kCPU);
  const auto measured = alternate({full, sparse}, {.warmup = 1, .repetitions = repetitions}, timer, [](int64_t) {});
  for (const auto& each : measured)
    if (!each.failure.empty()) throw sparsereel::run_failure(each.failure, "give fewer tokens");
  const Spread full_ms = spread(measured[0].milliseconds), ms = spread(measured[1].milliseconds);
  const auto share = [&](int64_t of) { return static_cast<double>(of) / result.statistics.total_blocks; };
  const double blocks = share(result.statistics.kept_blocks), mean_blocks = share(result.statistics.mean_blocks);
  const double flops = 4.0 * tokens * tokens * kHeads * kHeadDim;
  const double rate = flops * (blocks + mean_blocks) / ms.median / 1e6;
  std::printf(
      "| %lld | %.2f | %.3f | %.3f | %.2f (%.2f-%.2f) | %.2f (%.2f-%.2f) | %.2f | %.0f (%.0f%%) | %.0f (%.0f%%) |\n",
      static_cast<long long>(tokens), topk, blocks, mean_blocks, full_ms.median, full_ms.lower_quartile,
      full_ms.upper_quartile, ms.median, ms.lower_quartile, ms.upper_quartile, full_ms.median / ms.median, rate,
      100 * rate / peak, flops / full_ms.median / 1e6, 100 * flops / full_ms.median / 1e6 / peak);
}

int run(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 31;
  std::vector<int64_t> lengths;
  for (int i = 2; i < argc; ++i) lengths.push_back(std::atoll(argv[i]));
  if (lengths.empty()) lengths = {2336, 8000};
  if (repetitions < 1 || std::any_of(lengths.begin(), lengths.end(), [](int64_t n) { return n < 1; })) {
    std::fprintf(stderr, "usage: %s [REPETITIONS [TOKENS...]]\n", argv[0]);
    return 2;
  }
  const double peak = peak_gflops();
  std::printf("%d threads, kernel %s, FMA peak of this run %.0f GFLOP/s, %d repetitions, median (quartiles)\n\n",
              at::get_num_threads(), chosen_tile_kernel().name, peak, repetitions);
  std::printf(
      "| tokens | topk | blocks kept | means | SDPA ms | sparse ms | SDPA / sparse | sparse GFLOP/s (of peak) | SDPA "
      "GFLOP/s "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (const int64_t tokens : lengths)
    for (const double topk : {1.0, 0.5, 0.3, 0.15})
      for (const bool means : {false, true}) compare(tokens, topk, means, repetitions, peak);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const c10::InferenceMode guard;
  return sparsereel::bench::guarded([&] { return run(argc, argv); });
}
