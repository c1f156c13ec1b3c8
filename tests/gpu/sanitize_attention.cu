// sanitize_attention KERNEL [MODE]: runs every mode of an attention kernel on small shapes, for compute-sanitizer
// (tests/gpu/sanitize). KERNEL is hopper, ada, ampere or sixteen. The program uses no torch, because loading torch
// under compute-sanitizer would take most of the time. Other tests check the results.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "attention/cuda/scratch.h"
#include "tests/gpu/attention_call.cuh"

namespace {

using namespace sparsereel::attention::cuda;

/// Buffers that some modes use, each large enough for every shape.
struct Extras {
  OnDevice<float> lse{std::vector<float>(100000)};
  OnDevice<uint64_t> counts{std::vector<uint64_t>(kCounts)};
  OnDevice<float> out_scale{std::vector<float>(2)};
  OnDevice<int64_t> lengths{std::vector<int64_t>{50, 1}};
  OnDevice<uint8_t> map{[] {
    std::mt19937 generator(1);
    std::vector<uint8_t> bits(100000);
    for (uint8_t& bit : bits) bit = generator() % 3 == 0;
    return bits;
  }()};
  std::vector<HeadChoice> heads = [] {
    std::vector<HeadChoice> some(64, {0.3, HeadChoice::Kind::topk, 1, 0.1F, 50});
    some[1].kind = HeadChoice::Kind::dense;
    return some;
  }();
  std::shared_ptr<const SideStreams> side = own_side_streams();
  OnDevice<float> weights{std::vector<float>(4096, 1.25F)};
  OnDevice<uint16_t> rotary{std::vector<uint16_t>(1000000, 0x3800)};  // fp16 0.5
  OnDevice<float> table{std::vector<float>(1000000, 0.5F)};
};

struct Mode {
  const char* name;
  std::function<void(KernelParams&, const Extras&)> set;
  bool long_too = false;  // true if the mode also runs on long shapes
};

void normalize(KernelParams& p, const Extras& extras, Prologue::Norm norm, bool across, bool interleaved) {
  Prologue& prologue = p.prologue;
  prologue.norm = norm;
  prologue.across_heads = across;
  prologue.eps = 1e-6F;
  prologue.q_weight = prologue.k_weight = extras.weights.get();
  prologue.rotary_pairs = extras.rotary.get();
  prologue.rotary_tokens = p.keys - 30;
  prologue.interleaved = interleaved;
}

const Mode modes[] = {
    {"dense", [](KernelParams&, const Extras&) {}, true},
    {"topk", [](KernelParams& p, const Extras&) { predict(p); }, true},
    {"topk without similarity",
     [](KernelParams& p, const Extras&) {
       predict(p);
       ignore_similarity(p);
     }},
    {"cdf with text, 128 rows a selection",
     [](KernelParams& p, const Extras&) {
       predict(p);
       p.selection.rows = 128;
       p.selection.all = {1, HeadChoice::Kind::cdf, 0.6F, 0.1F, 50};
       p.text_tokens = 30;
     }},
    {"topk with text",
     [](KernelParams& p, const Extras&) {
       predict(p);
       p.text_tokens = 30;
     }},
    {"dense causal, log-sum-exp",
     [](KernelParams& p, const Extras& extras) {
       p.causal = true;
       p.lse = extras.lse.get();
     }},
    {"topk causal",
     [](KernelParams& p, const Extras&) {
       predict(p);
       p.causal = true;
     }},
    {"key lengths, log-sum-exp",
     [](KernelParams& p, const Extras& extras) {
       p.key_lengths = extras.lengths.get();
       p.lse = extras.lse.get();
     }},
    {"map",
     [](KernelParams& p, const Extras& extras) {
       p.selection.kind = Selection::Kind::map;
       p.selection.map = extras.map.get();
     }},
    {"P.V skip",
     [](KernelParams& p, const Extras&) {
       predict(p);
       p.selection.skips_pv = true;
       p.selection.all.pv_threshold = 1;
     },
     true},
    {"P.V skip, causal",
     [](KernelParams& p, const Extras&) {
       p.causal = true;
       p.selection.skips_pv = true;
       p.selection.all.pv_threshold = 1;
     }},
    {"norm per head and rotary embedding",
     [](KernelParams& p, const Extras& extras) {
       predict(p);
       normalize(p, extras, Prologue::Norm::layer, false, true);
     }},
    {"norm across heads and rotary embedding of halves",
     [](KernelParams& p, const Extras& extras) { normalize(p, extras, Prologue::Norm::rms, true, false); }},
    {"norm across heads and rotary embedding of neighbours",
     [](KernelParams& p, const Extras& extras) { normalize(p, extras, Prologue::Norm::rms, true, true); }},
    {"rotary embedding by tables",
     [](KernelParams& p, const Extras& extras) {
       normalize(p, extras, Prologue::Norm::rms, true, true);
       p.prologue.rotary_pairs = nullptr;
       p.prologue.rotary_cos = p.prologue.rotary_sin = extras.table.get();
     }},
    {"weights of text tokens and angles by head",
     [](KernelParams& p, const Extras& extras) {
       predict(p);
       normalize(p, extras, Prologue::Norm::rms, false, true);
       p.text_tokens = 30;
       p.prologue.rotary_pairs = nullptr;
       p.prologue.text_q_weight = p.prologue.text_k_weight = extras.weights.get();
       p.prologue.rotary_positions = p.prologue.rotary_frequencies = extras.table.get();
     }},
    {"map of 128 queries a block",
     [](KernelParams& p, const Extras& extras) {
       p.selection.kind = Selection::Kind::map;
       p.selection.map = extras.map.get();
       p.selection.map_rows = 128;
     }},
    {"means by error",
     [](KernelParams& p, const Extras&) {
       predict(p);
       keep_means(p);
       ignore_similarity(p);
     },
     true},
    {"means by error, a budget a head",
     [](KernelParams& p, const Extras& extras) {
       predict(p);
       keep_means(p);
       p.selection.heads = extras.heads.data();
     }},
    {"means up to a predicted error, with text, 64 rows a selection",
     [](KernelParams& p, const Extras&) {
       predict(p);
       keep_means(p);
       p.selection.rows = 64;
       p.selection.predicts_error = true;
       p.selection.all = {1, HeadChoice::Kind::error, 1, 0.1F, 50, 0.1F};
       p.text_tokens = 30;
     },
     true},
    {"means up to a predicted error of a block, with text",
     [](KernelParams& p, const Extras&) {
       predict(p);
       keep_means(p);
       p.selection.any_block_error = true;
       p.selection.all = {1, HeadChoice::Kind::block_error, 1, 0.1F, 50, 0.01F};
       p.text_tokens = 30;
     },
     true},
    {"means causal, log-sum-exp",
     [](KernelParams& p, const Extras& extras) {
       predict(p);
       keep_means(p);
       p.causal = true;
       p.lse = extras.lse.get();
     },
     true},
    {"means by mass of a map, key lengths",
     [](KernelParams& p, const Extras& extras) {
       p.selection.kind = Selection::Kind::map;
       p.selection.map = extras.map.get();
       p.selection.means = true;
       p.key_lengths = extras.lengths.get();
     }},
    {"all heads share one of K and V, means by error",
     [](KernelParams& p, const Extras&) {
       predict(p);
       keep_means(p);
       p.kv_heads = 1;
     },
     true},
    {"all heads share one of K and V, norm across heads, causal, log-sum-exp",
     [](KernelParams& p, const Extras& extras) {
       normalize(p, extras, Prologue::Norm::rms, true, true);
       p.kv_heads = 1;
       p.causal = true;
       p.lse = extras.lse.get();
     }},
    {"outliers of V",
     [](KernelParams& p, const Extras&) {
       // Some values of one token become the largest bf16 number. The sample that determines V's scale may not contain
       // them.
       check(cudaMemset(static_cast<uint16_t*>(p.v.data) + p.v.token_stride, 0x7F, 64));
     }},
    {"fp16", [](KernelParams& p, const Extras&) { p.element = Element::fp16; }},
    {"8-bit output", [](KernelParams& p, const Extras& extras) { p.out_scale = extras.out_scale.get(); }, true},
};

/// Initializes the last eight mean keys of each head. The kernel reads mean keys in groups of eight, and no kernel may
/// have written the last of them. The products with those are never used, but initcheck would report the reads.
void fill_last_pooled(const KernelParams& p, Kernel kernel, uint8_t* scratch) {
  const Sizes sizes(p, traits_of(kernel));
  const Buffers buffers = buffers_in(scratch, p, sizes, traits_of(kernel));
  const size_t key = sizes.D * sizeof(uint16_t), eight = kPooledKeys * key, head = sizes.pooled_blocks * key;
  for (uint16_t* const pooled : {buffers.k_mean, buffers.k_variance}) {
    if (pooled == nullptr) continue;
    uint8_t* const last = reinterpret_cast<uint8_t*>(pooled) + head - eight;
    check(cudaMemset2D(last, head, 0xFF, eight, sizes.batch_kv_heads));
  }
}

void run(const Shape& shape, const Mode& mode, Kernel kernel, const Extras& extras) {
  const OnDevice<uint16_t> q(shape.size()), k(shape.size()), v(shape.size()), out(shape.size());
  fill_with_normals(q, shape, 1);
  fill_with_normals(k, shape, 2);
  fill_with_normals(v, shape, 3);
  KernelParams p = params_of(shape, q, k, v, out);
  p.counts = extras.counts.get();
  mode.set(p, extras);
  if (!traits_of(kernel).writes_e4m3) p.out_scale = nullptr;
  const OnDevice<uint8_t> scratch(static_cast<int64_t>(scratch_bytes(p, kernel)));
  fill_last_pooled(p, kernel, scratch.get());
  check(attention(p, kernel, Steps::all, scratch.get(), *extras.side, nullptr));
  check(cudaDeviceSynchronize());
}

/// Shapes so long that, on 132 multiprocessors, each CTA of the Hopper kernel takes two or three whole tiles and also
/// parts of tiles. They have 79 blocks of keys.
constexpr Shape kLong[] = {{1, 11, 5000, 64}, {1, 11, 5000, 128}};

/// Returns a mode that keeps 90% of the blocks, so that a tile's list has more than 64 blocks. The Hopper kernel adds
/// the means that were subtracted from V back for 64 blocks at a time, so these lists need more than one round.
Mode with_long_lists(const Mode& mode) {
  return {mode.name, [set = mode.set](KernelParams& p, const Extras& extras) {
            set(p, extras);
            p.selection.all.topk = 0.9;
          }};
}

/// Runs the kernel for calls with few keys, with a norm and a bias. Queries and keys are the first tokens of the shape.
/// If out_scale is not null, the output is in 8 bits.
void run_few_keys(const Shape& shape, int keys, float* out_scale) {
  const OnDevice<uint16_t> q(shape.size()), k(shape.size()), v(shape.size()), out(shape.size());
  fill_with_normals(q, shape, 1);
  fill_with_normals(k, shape, 2);
  fill_with_normals(v, shape, 3);
  const OnDevice<float> bias(std::vector<float>(static_cast<size_t>(shape.batch * keys), 0.5F)),
      weights(std::vector<float>(static_cast<size_t>(shape.row()), 1.25F)),
      moments(2 * shape.batch * (shape.tokens + keys));
  KernelParams p = params_of(shape, q, k, v, out);
  p.keys = keys;
  p.key_bias = bias.get();
  p.out_scale = out_scale;
  p.prologue = {.norm = Prologue::Norm::rms,
                .across_heads = true,
                .eps = 1e-6F,
                .q_weight = weights.get(),
                .k_weight = weights.get()};
  check(attend_few_keys(p, moments.get(), nullptr));
  if (keys <= kMostWeighedKeys) check(weigh_few_keys(p, moments.get(), nullptr));
  check(cudaDeviceSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
  const auto* const found = std::find_if(std::begin(kKernels), std::end(kKernels),
                                         [&](const KernelTraits& kernel) { return kernel.name == name; });
  std::vector<Mode> wanted;
  std::copy_if(std::begin(modes), std::end(modes), std::back_inserter(wanted),
               [&](const Mode& mode) { return only.empty() || only == mode.name; });
  if (found == std::end(kKernels) || wanted.empty()) {
    std::fprintf(stderr, "usage: sanitize_attention hopper|ada|ampere|sixteen [MODE], of the modes\n");
    for (const Mode& mode : modes) std::fprintf(stderr, "  %s\n", mode.name);
    return 2;
  }
  const Extras extras;
  for (const Shape& shape : {Shape{1, 5, 700, 64}, Shape{2, 3, 333, 128}, Shape{1, 1, 200, 256}, Shape{1, 1, 65, 32},
                             Shape{1, 1, 250, 128}, Shape{1, 1, 1200, 64}}) {
    if (shape.head_dim > found->most_head_dim) continue;
    for (const Mode& mode : wanted) run(shape, mode, found->kernel, extras);
  }
  for (const Shape& shape : kLong)
    for (const Mode& mode : wanted)
      if (found->shares_tiles && mode.long_too) run(shape, with_long_lists(mode), found->kernel, extras);
  if (only.empty()) {
    run_few_keys({3, 5, 333, 64}, 65, nullptr);
    run_few_keys({1, 2, 5000, 128}, 21, extras.out_scale.get());
  }
  std::printf("%s: %zu modes\n", name.c_str(), wanted.size());
}
