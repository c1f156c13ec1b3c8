// Every mode of the attention kernels on small shapes, for compute-sanitizer (tests/gpu/sanitize): without torch, whose
// start would take most of the time there. Results are the tests' business.
//   sanitize_attention KERNEL [MODE]     (hopper, ada or ampere)
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "attention/cuda/kernels.h"

namespace {

using namespace sparsereel::attention::cuda;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

/// Device memory with a copy of host values.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) {
    check(cudaMalloc(&data_, values.size() * sizeof(T)));
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

std::mt19937 generator(1);

/// Normal values; the upper half of a float is a bf16, and read as an fp16 a finite one too.
std::vector<uint16_t> normal_bf16(size_t count) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) {
    const float x = normal(generator);
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    value = static_cast<uint16_t>(bits >> 16);
  }
  return values;
}

struct Shape {
  int batch, heads, tokens, head_dim;
};

/// What a mode may point to, fit for every shape.
struct Extras {
  OnDevice<float> lse{std::vector<float>(100000)};
  OnDevice<uint64_t> counts{std::vector<uint64_t>(kCounts)};
  OnDevice<int64_t> lengths{std::vector<int64_t>{50, 1}};
  OnDevice<uint8_t> map{[] {
    std::vector<uint8_t> bits(100000);
    for (uint8_t& bit : bits) bit = generator() % 3 == 0;
    return bits;
  }()};
  OnDevice<HeadChoice> heads{[] {
    std::vector<HeadChoice> heads(64, {0.3, HeadChoice::Kind::topk, 1, 0.1F, 50});
    heads[1].kind = HeadChoice::Kind::dense;
    return heads;
  }()};
  OnDevice<float> weights{std::vector<float>(4096, 1.25F)};
  OnDevice<uint16_t> rotary{std::vector<uint16_t>(1000000, 0x3800)};  // fp16 0.5
};

struct Mode {
  const char* name;
  std::function<void(Problem&, const Extras&)> set;
};

void predict(Problem& p) {
  p.selection.kind = Selection::Kind::predict;
  p.selection.rows = 192;
  p.selection.similarity = true;
  p.selection.all = {0.3, HeadChoice::Kind::topk, 1, 0.1F, 50};
}

void keep_means(Problem& p) {
  p.selection.means = p.selection.by_error = p.selection.any_topk = true;
}

void normalise(Problem& p, const Extras& extras, Prologue::Norm norm, bool across) {
  Prologue& prologue = p.prologue;
  prologue.norm = norm;
  prologue.across_heads = across;
  prologue.eps = 1e-6F;
  prologue.q_weight = prologue.k_weight = extras.weights.get();
  prologue.rotary = extras.rotary.get();
  prologue.rotary_tokens = p.keys - 30;
  prologue.interleaved = !across;
}

const Mode modes[] = {
    {"dense", [](Problem&, const Extras&) {}},
    {"topk", [](Problem& p, const Extras&) { predict(p); }},
    {"topk without similarity",
     [](Problem& p, const Extras&) {
       predict(p);
       p.selection.similarity = false;
       p.selection.all.similarity = -1;
     }},
    {"cdf with text, 128 rows a selection",
     [](Problem& p, const Extras&) {
       predict(p);
       p.selection.rows = 128;
       p.selection.all = {1, HeadChoice::Kind::cdf, 0.6F, 0.1F, 50};
       p.text_tokens = 30;
     }},
    {"topk with text",
     [](Problem& p, const Extras&) {
       predict(p);
       p.text_tokens = 30;
     }},
    {"dense causal, log-sum-exp",
     [](Problem& p, const Extras& extras) {
       p.causal = true;
       p.lse = extras.lse.get();
     }},
    {"topk causal",
     [](Problem& p, const Extras&) {
       predict(p);
       p.causal = true;
     }},
    {"key lengths, log-sum-exp",
     [](Problem& p, const Extras& extras) {
       p.key_lengths = extras.lengths.get();
       p.lse = extras.lse.get();
     }},
    {"map",
     [](Problem& p, const Extras& extras) {
       p.selection.kind = Selection::Kind::map;
       p.selection.map = extras.map.get();
     }},
    {"P.V skip",
     [](Problem& p, const Extras&) {
       predict(p);
       p.selection.skips_pv = true;
       p.selection.all.pv_threshold = 1;
     }},
    {"P.V skip, causal",
     [](Problem& p, const Extras&) {
       p.causal = true;
       p.selection.skips_pv = true;
       p.selection.all.pv_threshold = 1;
     }},
    {"norm per head and rotary embedding",
     [](Problem& p, const Extras& extras) {
       predict(p);
       normalise(p, extras, Prologue::Norm::layer, false);
     }},
    {"norm across heads and rotary embedding",
     [](Problem& p, const Extras& extras) { normalise(p, extras, Prologue::Norm::rms, true); }},
    {"means by error",
     [](Problem& p, const Extras&) {
       predict(p);
       keep_means(p);
       p.selection.similarity = false;
       p.selection.all.similarity = -1;
     }},
    {"means by error, a budget a head",
     [](Problem& p, const Extras& extras) {
       predict(p);
       keep_means(p);
       p.selection.heads = extras.heads.get();
     }},
    {"means up to a predicted error, with text, 64 rows a selection",
     [](Problem& p, const Extras&) {
       predict(p);
       keep_means(p);
       p.selection.rows = 64;
       p.selection.predicts_error = true;
       p.selection.all = {1, HeadChoice::Kind::error, 1, 0.1F, 50, 0.1F};
       p.text_tokens = 30;
     }},
    {"means causal, log-sum-exp",
     [](Problem& p, const Extras& extras) {
       predict(p);
       keep_means(p);
       p.causal = true;
       p.lse = extras.lse.get();
     }},
    {"means by mass of a map, key lengths",
     [](Problem& p, const Extras& extras) {
       p.selection.kind = Selection::Kind::map;
       p.selection.map = extras.map.get();
       p.selection.means = true;
       p.key_lengths = extras.lengths.get();
     }},
    {"outliers of V",
     [](Problem& p, const Extras&) {
       // A channel's row of V as the scale's sample may miss it: the largest bf16.
       check(cudaMemset(static_cast<uint16_t*>(p.v.data) + p.v.token_stride, 0x7F, 64));
     }},
    {"fp16", [](Problem& p, const Extras&) { p.element = Element::fp16; }},
};

void run(const Shape& shape, const Mode& mode, Kernel kernel, const Extras& extras) {
  Problem p;
  p.batch = shape.batch;
  p.heads = shape.heads;
  p.queries = p.keys = shape.tokens;
  p.head_dim = shape.head_dim;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  p.counts = extras.counts.get();
  const int64_t row = shape.heads * shape.head_dim, count = shape.batch * shape.tokens * row;
  const OnDevice<uint16_t> q(normal_bf16(count)), k(normal_bf16(count)), v(normal_bf16(count)),
      out{std::vector<uint16_t>(count)};
  const auto view = [&](const OnDevice<uint16_t>& tensor) {
    return View{tensor.get(), shape.tokens * row, row, shape.head_dim};
  };
  p.q = view(q);
  p.k = view(k);
  p.v = view(v);
  p.out = view(out);
  mode.set(p, extras);
  uint8_t* scratch = nullptr;
  check(cudaMalloc(&scratch, scratch_bytes(p, kernel)));
  if (const char* problem = attention(p, kernel, Steps::all, scratch, nullptr)) {
    std::fprintf(stderr, "%s\n", problem);
    std::exit(1);
  }
  check(cudaDeviceSynchronize());
  check(cudaFree(scratch));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
  const char* const names[] = {"hopper", "ada", "ampere"};
  const auto* const found = std::find(std::begin(names), std::end(names), name);
  std::vector<Mode> wanted;
  std::copy_if(std::begin(modes), std::end(modes), std::back_inserter(wanted),
               [&](const Mode& mode) { return only.empty() || only == mode.name; });
  if (found == std::end(names) || wanted.empty()) {
    std::fprintf(stderr, "usage: sanitize_attention hopper|ada|ampere [MODE], of the modes\n");
    for (const Mode& mode : modes) std::fprintf(stderr, "  %s\n", mode.name);
    return 2;
  }
  const auto kernel = static_cast<Kernel>(found - std::begin(names));
  const Extras extras;
  for (const Shape& shape : {Shape{1, 5, 700, 64}, Shape{2, 3, 333, 128}, Shape{1, 1, 200, 256}, Shape{1, 1, 65, 32},
                             Shape{1, 1, 250, 128}, Shape{1, 1, 1200, 64}}) {
    if (kernel == Kernel::hopper && shape.head_dim > 128) continue;
    for (const Mode& mode : wanted) run(shape, mode, kernel, extras);
  }
  std::printf("%s: %zu modes\n", name.c_str(), wanted.size());
}
