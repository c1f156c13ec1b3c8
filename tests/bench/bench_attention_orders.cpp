// bench_attention_orders FILE: prints for each token order how many blocks sparse attention needs, and its error.
// FILE holds calls that capture_attention saved.
// bench_attention_orders structured [HEADS TOKENS HEAD_DIM]: does so for structured data (app/lab/measure/inputs.cpp)
// in the order in which they are made, and shuffled. Default: 4 4096 64.
//
// Prints four tables in Markdown. Errors are relative L1 against full attention. Values are means over the calls:
//   1. The smallest share of the blocks of 64 keys that holds 90, 95 or 98% of the softmax mass of a tile. A tile is
//      128 or 192 video queries. The mean is over tiles, batch entries and heads, too.
//   2. The error at equal topk, by what replaces dropped blocks: nothing, or means of 64 or 16 tokens. Each selection
//      serves 192 queries. It ranks blocks by mass or by the error of the means. A call's error covers all its heads.
//   3. The error at equal topk if dropped blocks are not replaced, by how many queries share a selection. The mean is
//      over batch entries and heads, too. The Hopper kernel computes 192 queries with one list, the union of their
//      selections. `computed` is the share of blocks in these unions, which decides the time on such a GPU.
//      `L1 of the union` is the error if each query used the union instead of its selection.
//   4. The same at equal `computed`, for the first order only. Values are interpolated linearly between the two nearest
//      numbers of selected blocks.
// Kept blocks are computed exactly: no P.V product is skipped.
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "app/lab/measure/captured.h"
#include "app/lab/measure/inputs.h"
#include "attention/attention.h"
#include "attention/cpu/selection.h"
#include "attention/cpu_tensor.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;
using attention::kBlock;
using hilbert::TokenOrder;

constexpr std::array<int64_t, 3> kSelectionRows{64, 128, 192};
constexpr std::array<double, 3> kTopk{0.5, 0.3, 0.2};
constexpr std::array<double, 4> kMeansTopk{0.5, 0.3, 0.15, 0.07};
constexpr std::array<double, 3> kMasses{0.9, 0.95, 0.98};
constexpr int64_t kListBlocks = 3;  // 64-query blocks that share a list of key blocks on Hopper

/// The inputs of a call and the result of full attention, all [B, N, H, D].
struct TimedCall {
  at::Tensor q, k, v, full;
};

struct Data {
  int64_t text_tokens = 0;
  std::vector<TimedCall> calls;
};

attention::Result attend(const TimedCall& call, attention::Context context, attention::Mode mode) {
  static attention::Workspace workspace;
  context.mode = mode;
  context.policy.defaults.pv_threshold = attention::cpu::kNeverSkip;
  return attention::attend(call.q, call.k, call.v, context, workspace);
}

attention::Context context_of(const Data& data) {
  attention::Context context;
  context.text_tokens = data.text_tokens;
  return context;
}

/// Returns the data with its video tokens in another order.
Data in_order(const app::Capture& capture, TokenOrder order) {
  const at::Tensor places = app::places_in(order, capture);
  const auto moved = [&](const at::Tensor& t) { return t.index_select(1, places).to(at::kFloat); };
  Data data{.text_tokens = capture.text_tokens, .calls = {}};
  for (const app::CapturedCall& call : capture.calls) {
    TimedCall one{.q = moved(call.q), .k = moved(call.k), .v = moved(call.v), .full = {}};
    one.full = attend(one, context_of(data), attention::Mode::full).out;
    data.calls.push_back(std::move(one));
  }
  return data;
}

/// Returns the softmax mass [tiles, key blocks] of one head's video queries, for q and k [N, D]. The masses of a tile
/// add up to its number of queries.
at::Tensor block_mass(const at::Tensor& q, const at::Tensor& k, int64_t video, int64_t tile) {
  const auto sum_groups = [](const at::Tensor& x, int64_t dim, int64_t group) {
    const int64_t size = x.size(dim), groups = (size + group - 1) / group;
    std::vector<int64_t> pad(dim == 0 ? 4 : 2, 0);
    pad.back() = groups * group - size;
    return at::constant_pad_nd(x, pad).unflatten(dim, {groups, group}).sum(dim + 1);
  };
  std::vector<at::Tensor> parts;  // one per tile, because the scores of all tiles may not fit into memory
  for (int64_t first = 0; first < video; first += tile) {
    const at::Tensor queries = q.narrow(0, first, std::min(tile, video - first));
    const at::Tensor p = at::softmax(at::matmul(queries, k.t()) / std::sqrt(static_cast<double>(q.size(1))), 1);
    parts.push_back(sum_groups(p, 1, kBlock).sum(0));
  }
  return at::stack(parts);
}

/// Returns for each of kMasses the smallest share of key blocks that holds this share of a tile's attention, averaged
/// over tiles, heads and calls.
std::array<double, 3> blocks_needed(const Data& data, int64_t tile) {
  std::array<double, 3> shares{};
  int64_t heads = 0;
  for (const TimedCall& call : data.calls) {
    for (int64_t i = 0; i < call.q.size(0) * call.q.size(2); ++i, ++heads) {
      const auto head = [&](const at::Tensor& x) { return x[i / x.size(2)].select(1, i % x.size(2)); };
      const at::Tensor mass = block_mass(head(call.q), head(call.k), call.q.size(1) - data.text_tokens, tile);
      const at::Tensor reached = std::get<0>(mass.sort(1, true)).cumsum(1) / mass.sum(1, true);
      for (size_t m = 0; m < kMasses.size(); ++m) {
        const at::Tensor count = (reached < kMasses[m]).sum(1) + 1;
        shares[m] += count.to(at::kDouble).mean().item<double>() / static_cast<double>(mass.size(1));
      }
    }
  }
  for (double& share : shares) share /= static_cast<double>(heads);
  return shares;
}

/// The cost and the error of a selection.
struct Cost {
  double selected = 0, computed = 0;  // share of all blocks in the selection, and in its list_union()
  double l1 = 0, union_l1 = 0;        // relative L1 error of the selection, and of its list_union()

  Cost& operator+=(const Cost& other) {
    selected += other.selected;
    computed += other.computed;
    l1 += other.l1;
    union_l1 += other.union_l1;
    return *this;
  }
};

attention::BlockMap predict(const TimedCall& call, const Data& data, double topk, int64_t rows) {
  attention::cpu::KernelParams params;
  params.batch = call.q.size(0);
  params.heads = call.q.size(2);
  params.queries = call.q.size(1);
  params.keys = call.k.size(1);
  params.head_dim = call.q.size(3);
  params.q = attention::const_view(call.q);
  params.k = attention::const_view(call.k);
  params.scale = 1 / std::sqrt(static_cast<double>(call.q.size(3)));
  params.text_tokens = data.text_tokens;
  attention::HeadPolicy policy;
  policy.topk = topk;
  const std::vector<attention::HeadPolicy> heads(static_cast<size_t>(params.heads), policy);
  return attention::cpu::predict_blocks(params, {.heads = heads, .rows = rows}, attention::parallel_for).map;
}

/// Returns a map in which each group of kListBlocks rows, which share a list on the GPU, has the union of its blocks.
attention::BlockMap list_union(const attention::BlockMap& map) {
  attention::BlockMap all = map;
  for (int64_t head = 0; head < map.batch * map.heads; ++head) {
    for (int64_t i = 0; i < map.query_blocks; ++i) {
      const int64_t first = i / kListBlocks * kListBlocks, last = std::min(first + kListBlocks, map.query_blocks);
      uint8_t* row = all.row(head / map.heads, head % map.heads, i);
      for (int64_t other = first; other < last; ++other) {
        const uint8_t* from = map.row(head / map.heads, head % map.heads, other);
        for (int64_t j = 0; j < map.key_blocks; ++j) row[j] |= from[j];
      }
    }
  }
  return all;
}

double share(const attention::BlockMap& map) {
  return static_cast<double>(attention::cpu::count_blocks(map)) / static_cast<double>(map.bits.size());
}

/// Returns the relative L1 error of attention with this block map against full attention, averaged over batch entries
/// and heads.
double error(const TimedCall& call, const Data& data, const attention::BlockMap& map) {
  attention::Context context = context_of(data);
  context.policy.dropped = attention::Dropped::none;
  context.policy.ranking = attention::Ranking::mass;
  context.block_map = map;
  const at::Tensor out = attend(call, context, attention::Mode::sparse).out;
  const at::Tensor difference = (out - call.full).abs().sum({1, 3}, false, at::kDouble);
  return (difference / call.full.abs().sum({1, 3}, false, at::kDouble)).mean().item<double>();
}

Cost cost(const Data& data, double topk, int64_t rows) {
  Cost mean;
  const double weight = 1 / static_cast<double>(data.calls.size());
  for (const TimedCall& call : data.calls) {
    const attention::BlockMap map = predict(call, data, topk, rows), all = list_union(map);
    mean += {.selected = weight * share(map),
             .computed = weight * share(all),
             .l1 = weight * error(call, data, map),
             .union_l1 = weight * error(call, data, all)};
  }
  return mean;
}

/// A way to choose blocks and to replace blocks that are not computed.
struct Variant {
  attention::Dropped dropped;
  attention::Ranking ranking;
  int64_t cell;
};

constexpr std::array<Variant, 5> kVariants{{
    {.dropped = attention::Dropped::none, .ranking = attention::Ranking::mass, .cell = 64},
    {.dropped = attention::Dropped::mean, .ranking = attention::Ranking::mass, .cell = 64},
    {.dropped = attention::Dropped::mean, .ranking = attention::Ranking::error, .cell = 64},
    {.dropped = attention::Dropped::mean, .ranking = attention::Ranking::mass, .cell = 16},
    {.dropped = attention::Dropped::mean, .ranking = attention::Ranking::error, .cell = 16},
}};

/// Returns the relative L1 error of this variant against full attention: one error for all heads of a call, averaged
/// over calls.
double error(const Data& data, double topk, const Variant& variant) {
  attention::Context context = context_of(data);
  context.policy.defaults.topk = topk;
  context.policy.selection_rows = 192;
  context.policy.dropped = variant.dropped;
  context.policy.ranking = variant.ranking;
  context.policy.cell = variant.cell;
  double sum = 0;
  for (const TimedCall& call : data.calls) {
    const at::Tensor out = attend(call, context, attention::Mode::sparse).out;
    sum += ((out - call.full).abs().sum(at::kDouble) / call.full.abs().sum(at::kDouble)).item<double>();
  }
  return sum / static_cast<double>(data.calls.size());
}

/// Returns the cost of a selection with the given `computed`. It is interpolated between the two nearest numbers of
/// selected blocks.
Cost cost_at(const Data& data, double computed, int64_t rows) {
  const int64_t blocks = attention::blocks_of(data.calls[0].k.size(1));
  const auto at_count = [&](int64_t count) {
    return cost(data, (static_cast<double>(count) + 0.01) / static_cast<double>(blocks), rows);
  };
  int64_t low = 1, high = blocks - 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (at_count(middle).computed < computed ? low : high) = middle;
  }
  const Cost below = at_count(low), above = at_count(high);
  const double t = std::clamp((computed - below.computed) / (above.computed - below.computed), 0.0, 1.0);
  const auto between = [t](double a, double b) { return a + t * (b - a); };
  return {.selected = between(below.selected, above.selected),
          .computed = between(below.computed, above.computed),
          .l1 = between(below.l1, above.l1),
          .union_l1 = between(below.union_l1, above.union_l1)};
}

struct Named {
  std::string name;
  Data data;
};

void print_blocks_needed(const std::vector<Named>& all) {
  std::printf("Smallest share of the key blocks that holds 90, 95 or 98%% of the softmax mass:\n\n");
  std::printf("| order | queries a tile | blocks for 90%% of the mass | 95%% | 98%% |\n|---|---|---|---|---|\n");
  for (const Named& named : all) {
    for (const int64_t tile : {128, 192}) {
      const auto shares = blocks_needed(named.data, tile);
      std::printf("| %s | %lld | %.3f | %.3f | %.3f |\n", named.name.c_str(), static_cast<long long>(tile), shares[0],
                  shares[1], shares[2]);
    }
  }
}

void print_cost(const std::string& start, int64_t rows, const Cost& c) {
  std::printf("| %s | %lld | %.3f | %.3f | %.4f | %.4f |\n", start.c_str(), static_cast<long long>(rows),
              1 - c.selected, c.computed, c.l1, c.union_l1);
}

std::string one_decimal(double x) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.1f", x);
  return text.data();
}

void print_costs(const std::vector<Named>& all) {
  std::printf(
      "\nBlocks dropped, by the queries that share a selection:\n\n"
      "| order | topk | selection rows | sparsity | computed | relative L1 | L1 of the union "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Named& named : all) {
    for (const double topk : kTopk)
      for (const int64_t rows : kSelectionRows)
        print_cost(named.name + " | " + one_decimal(topk), rows, cost(named.data, topk, rows));
  }
}

void print_means(const std::vector<Named>& all) {
  std::printf(
      "\nRelative L1 if dropped blocks are left out or replaced by means, with a selection for 192 queries:\n\n"
      "| order | topk | dropped | means of 64 | of 64, by error | of 16 | of 16, by error |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Named& named : all) {
    for (const double topk : kMeansTopk) {
      std::printf("| %s | %.2f |", named.name.c_str(), topk);
      for (const Variant& variant : kVariants) std::printf(" %.4f |", error(named.data, topk, variant));
      std::printf("\n");
    }
  }
}

void print_equal_costs(const Named& named) {
  std::printf(
      "\nBlocks dropped, at equal shares of computed blocks:\n\n"
      "| order | computed as at topk (192 rows) | selection rows | sparsity | computed | relative L1 | L1 of the union "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const double topk : kTopk) {
    const Cost like = cost(named.data, topk, 192);
    for (const int64_t rows : kSelectionRows) {
      print_cost(named.name + " | " + one_decimal(topk), rows,
                 rows == 192 ? like : cost_at(named.data, like.computed, rows));
    }
  }
}

app::Capture structured(int64_t heads, int64_t tokens, int64_t head_dim) {
  const app::Shape shape{.batch = 1, .heads = heads, .tokens = tokens, .head_dim = head_dim};
  const auto inputs = app::make_inputs(shape, app::DataKind::structured, at::kFloat, at::kCPU, 1, 42);
  app::Capture capture{.grid = {.frames = 1, .height = 1, .width = tokens},
                       .text_tokens = 0,
                       .calls = std::vector<app::CapturedCall>(1)};
  capture.calls[0].q = inputs[0].q;
  capture.calls[0].k = inputs[0].k;
  capture.calls[0].v = inputs[0].v;
  return capture;
}

int run(const std::vector<std::string>& arguments) {
  std::vector<Named> all;
  if (arguments[0] == "structured") {
    const auto number = [&](size_t i, int64_t otherwise) {
      return i < arguments.size() ? std::atoll(arguments[i].c_str()) : otherwise;
    };
    const app::Capture capture = structured(number(1, 4), number(2, 4096), number(3, 64));
    all.push_back({"as generated", in_order(capture, TokenOrder::native)});
    all.push_back({"random", in_order(capture, TokenOrder::random)});
  } else {
    const app::Capture capture = app::read_capture(arguments[0]);
    for (const TokenOrder order :
         {TokenOrder::hilbert, TokenOrder::morton, TokenOrder::native, TokenOrder::time_major, TokenOrder::random})
      all.push_back({std::string(name(order)), in_order(capture, order)});
  }
  const at::Tensor& q = all[0].data.calls.at(0).q;
  std::printf("%zu calls of [%lld, %lld, %lld, %lld], %lld text tokens\n\n", all[0].data.calls.size(),
              static_cast<long long>(q.size(0)), static_cast<long long>(q.size(1)), static_cast<long long>(q.size(2)),
              static_cast<long long>(q.size(3)), static_cast<long long>(all[0].data.text_tokens));
  print_blocks_needed(all);
  print_means(all);
  print_costs(all);
  print_equal_costs(all[0]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE | structured [HEADS TOKENS HEAD_DIM]\n", argv[0]);
    return 2;
  }
  const c10::InferenceMode guard;
  return sparsereel::bench::guarded([&] { return run({argv + 1, argv + argc}); });
}
