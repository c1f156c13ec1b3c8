// bench_8_bits MODEL REPETITIONS: times the linear layers of one transformer block at the model's own size in bf16 and
// in 8 bits, on a GPU, with random weights and activations. It alternates the products alone, the quantization of
// activations, and the whole block except attention. For Wan it also times the work before attention, and attention to
// long and short texts.
// bench_8_bits sums REPETITIONS: measures the error of the products' fast accumulation instead.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "app/lab/measure/timing.h"
#include "attention/attention.h"
#include "attention/prologue.h"
#include "models/layers/int8.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/residual.h"
#include "models/store/weights/device.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;
using models::Activation;
using models::Linear;

/// The sizes of the products in a model's transformer block.
struct Shape {
  int64_t batch, tokens, text, channels, hidden;
  bool cross;  // true if the block has cross-attention to the text, with head_dim 128
};

const std::map<std::string, Shape> kShapes = {{"cogvideox-2b", {2, 17776, 226, 1920, 7680, false}},
                                              {"cogvideox-5b", {2, 17776, 226, 3072, 12288, false}},
                                              {"wan-1.3b", {2, 32760, 0, 1536, 8960, true}},
                                              {"wan-14b", {1, 75600, 0, 5120, 13824, true}}};

at::TensorOptions on_gpu() {
  return at::TensorOptions().device(models::resolve_device("cuda:0")).dtype(at::kBFloat16);
}

struct Block {
  Linear qkv, out, cross_q, cross_out, in, down;

  explicit Block(const Shape& s)
      : qkv(layer(3 * s.channels, s.channels)),
        out(layer(s.channels, s.channels)),
        cross_q(layer(s.channels, s.channels)),
        cross_out(layer(s.channels, s.channels)),
        in(layer(s.hidden, s.channels)),
        down(layer(s.channels, s.hidden)) {}

  static Linear layer(int64_t out, int64_t in) {
    return {at::randn({out, in}, on_gpu()) / std::sqrt(static_cast<double>(in)), at::randn({out}, on_gpu())};
  }
  static Linear in_fp8(const Linear& layer) {
    const Activation rows = models::quantize_rows(layer.weight);
    return {rows.values, layer.bias, rows.scale.view({-1})};
  }
  static Linear in_int8(const Linear& layer) {
    const models::Int8Rows rows = models::quantize_int8_weight(layer.weight);
    models::StoredRows stored = {models::Dtype::i8, layer.weight.size(0), layer.weight.size(1), 0};
    stored.rotation = rows.rotation;
    stored.multiplies = true;
    return {rows.values.view(-1).view(at::kByte), layer.bias, rows.scale, {stored}};
  }
  Block with(Linear (*change)(const Linear&)) const {
    Block block = *this;
    for (Linear* each : {&block.qkv, &block.out, &block.cross_q, &block.cross_out, &block.in, &block.down})
      *each = change(*each);
    return block;
  }
};

struct Vectors {
  models::JointModulation modulation;

  explicit Vectors(const Shape& s) {
    const at::Tensor all = at::randn({s.batch, 6 * s.channels}, on_gpu().dtype(at::kFloat)) / 8;
    const std::vector<at::Tensor> v = all.chunk(6, 1);
    modulation = {.video = {v[0], v[1], v[2]}, .text = {v[3], v[4], v[5]}};
  }
};

struct Contender {
  std::string name;
  std::function<void()> call;
};

/// Runs a block's linear layers and norms as the models call them. `attended` takes the place of attention's output.
void run_block(const Shape& s, const Block& block, const Vectors& v, models::Residual& hidden,
               const Activation& attended) {
  Activation x = hidden.norm_modulate({}, 1e-6, v.modulation, block.qkv);
  linear(x, block.qkv);
  hidden.add(linear(attended, block.out), v.modulation);
  if (s.cross) {
    x = hidden.norm_modulate({}, 1e-6, v.modulation, block.cross_q);
    linear(x, block.cross_q);
    hidden.add(linear(attended, block.cross_out));
  }
  x = hidden.norm_modulate({}, 1e-6, v.modulation, block.in);
  hidden.add(feed_forward_gelu_tanh(x, block.in, block.down), v.modulation);
}

std::vector<Contender> contenders(const Shape& s, const Block& bf16, const Block& fp8, const Block& int8,
                                  const Vectors& v, at::Tensor& x, at::Tensor& update, at::Tensor& wide) {
  const auto products = [&](const Block& b, const Activation& narrow, const Activation& hidden) {
    return [&b, &s, narrow, hidden] {
      linear(narrow, b.qkv);
      linear(narrow, b.out);
      if (s.cross) linear(narrow, b.cross_q);
      if (s.cross) linear(narrow, b.cross_out);
      linear(narrow, b.in);
      linear(hidden, b.down);
    };
  };
  const auto product = [](const Linear& layer, const Activation& x8, bool fast) {
    return [&layer, rows = x8.values.flatten(0, 1), scale = x8.scale, fast] {
      at::_scaled_mm(rows, layer.weight.t(), scale, layer.scale.unsqueeze(0), layer.bias, {}, at::kBFloat16, fast);
    };
  };
  const models::RowFormat e4m3 = {.kind = models::RowFormat::e4m3}, of_channels = format_for(x, int8.in),
                          of_hidden = format_for(wide, int8.down);
  const Activation narrow8 = models::quantize_rows(x), wide8 = models::quantize_rows(wide);
  const auto block = [&](const Block& b, const Activation& attended) {
    return [&b, &s, &v, &x, attended] {
      models::Residual hidden(x, s.tokens - s.text);
      run_block(s, b, v, hidden, attended);
    };
  };
  const auto video = s.tokens - s.text;
  return {
      {"products, bf16", products(bf16, x, wide)},
      {"products, fp8", products(fp8, narrow8, wide8)},
      {"products, int8", products(int8, in_format(x, of_channels), in_format(wide, of_hidden))},
      {"feed forward out, fp8", product(fp8.down, wide8, true)},
      {"feed forward out, fp8, slow sums", product(fp8.down, wide8, false)},
      {"copy of C channels", [&] { update.copy_(x); }},
      {"gated add + norm + modulate, bf16",
       [&v, &x, &update, video] { add_gated_norm_modulate_(x, update, v.modulation, {}, 1e-6, video, v.modulation); }},
      {"the same, writing fp8",
       [&v, &x, &update, video, e4m3] {
         norm_modulate_quantize_(x, update, v.modulation, {}, 1e-6, video, v.modulation, e4m3);
       }},
      {"the same, writing int8",
       [&v, &x, &update, video, of_channels] {
         norm_modulate_quantize_(x, update, v.modulation, {}, 1e-6, video, v.modulation, of_channels);
       }},
      {"quantize C channels to fp8", [&] { models::quantize_rows(x); }},
      {"quantize C channels to int8", [&x, of_channels] { in_format(x, of_channels); }},
      {"copy of F channels", [&wide, other = at::empty_like(wide)] { other.copy_(wide); }},
      {"GELU and quantize F channels to fp8", [&wide, e4m3] { gelu_tanh_quantize_rows_(wide, e4m3); }},
      {"GELU and quantize F channels to int8", [&wide, of_hidden] { gelu_tanh_quantize_rows_(wide, of_hidden); }},
      {"feed forward in, GELU in its epilogue, bf16", [&] { linear_gelu_tanh(x, bf16.in); }},
      {"block without attention, bf16", block(bf16, x.clone())},
      {"block without attention, fp8", block(fp8, narrow8)},
      {"block without attention, int8", block(int8, x.clone())}};
}

/// Returns the prologue of Wan's self-attention: a norm across all heads and a rotary embedding.
attention::Prologue norm_across_heads(const Shape& s) {
  attention::Prologue prologue;
  prologue.norm = attention::Prologue::Norm::rms;
  prologue.across_heads = true;
  prologue.q_weight = prologue.k_weight = at::ones({s.channels}, on_gpu().dtype(at::kFloat));
  return prologue;
}

/// Returns a contender that runs only the prepass of sparse attention (quantizing and choosing blocks), at topk 0.15
/// with means.
Contender before_attention(const Shape& s, const at::Tensor& qkv, bool prologue) {
  attention::Context context{.mode = attention::Mode::sparse, .only_prepass = true};
  context.policy.defaults.topk = 0.15;
  if (prologue) {
    context.prologue = norm_across_heads(s);
    context.prologue.rotary_cos = at::rand({s.tokens, 128}, on_gpu().dtype(at::kFloat));
    context.prologue.rotary_sin = at::rand({s.tokens, 128}, on_gpu().dtype(at::kFloat));
    context.prologue.rotary_pairs = rotary_pairs(context.prologue);
  }
  return {std::string("before attention") + (prologue ? ", with norm across heads and rotary embedding" : ""),
          [qkv, context, workspace = std::make_shared<attention::Workspace>()] {
            attention::attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, *workspace);
          }};
}

/// Returns a contender for attention to text, with a norm across heads and a result in 8 bits. If `keys` is below 512,
/// they are the tokens of a short text and one key that stands for all padding.
Contender attention_to_text(const Shape& s, const at::Tensor& x, int64_t keys) {
  const at::Tensor q = x.unflatten(2, {-1, 128}), kv = at::randn({2, s.batch, keys, q.size(2), 128}, on_gpu());
  attention::Context context{.takes_e4m3 = true};
  context.prologue = norm_across_heads(s);
  if (keys < 512) context.key_bias = at::zeros({s.batch, keys}, on_gpu().dtype(at::kFloat));
  return {"attention to " + std::to_string(keys) + " keys, writing 8 bits", [q, kv, context] {
            attention::Workspace workspace;
            const attention::Result result = attend(q, kv[0], kv[1], context, workspace);
            if (!result.out_scale.defined()) models::quantize_rows(result.out.flatten(2));
          }};
}

int time_model(const Shape& s, int64_t repetitions) {
  const Block bf16(s), fp8 = bf16.with(Block::in_fp8), int8 = bf16.with(Block::in_int8);
  const Vectors v(s);
  at::Tensor x = at::randn({s.batch, s.tokens, s.channels}, on_gpu()), update = at::randn_like(x);
  at::Tensor wide = at::randn({s.batch, s.tokens, s.hidden}, on_gpu());
  std::vector<Contender> all = contenders(s, bf16, fp8, int8, v, x, update, wide);
  if (s.cross) {
    const at::Tensor qkv = at::randn({s.batch, s.tokens, 3, s.channels / 128, 128}, on_gpu());
    for (const bool prologue : {false, true}) all.push_back(before_attention(s, qkv, prologue));
    for (const int64_t keys : {512, 256, 130, 66, 22}) all.push_back(attention_to_text(s, x, keys));
  }
  std::vector<app::TimedCall> calls;
  for (const Contender& each : all) calls.push_back([&each](int64_t) { each.call(); });
  app::Timer timer(on_gpu().device());
  const auto measured =
      alternate(calls, {.warmup = 2, .repetitions = repetitions, .turn_ms = 40}, timer, [](int64_t) {});
  for (size_t i = 0; i < all.size(); ++i) {
    if (!measured[i].failure.empty()) {
      std::printf("| %s | failed: %s |\n", all[i].name.c_str(), measured[i].failure.c_str());
      continue;
    }
    const app::Spread ms = app::spread(measured[i].milliseconds);
    std::printf("| %s | %.3f | %.3f to %.3f |\n", all[i].name.c_str(), ms.median, ms.least, ms.most);
  }
  return 0;
}

/// Prints two errors against fp64 products of the same 8-bit numbers: the relative L1, and the relative mean error,
/// which differs from 0 if sums lose their last bits. Also prints the relative L1 against fp64 products of the
/// unrounded numbers.
void print_sums(const char* name, const at::Tensor& x, const at::Tensor& weight) {
  const Activation a = models::quantize_rows(x), w = models::quantize_rows(weight);
  const auto wide = [](const Activation& rows) { return rows.values.to(at::kDouble) * rows.scale; };
  const at::Tensor exact = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
  const at::Tensor of_fp8 = at::matmul(wide(a), wide(w).t());
  const auto l1 = [](const at::Tensor& y, const at::Tensor& to) {
    return ((y - to).abs().sum() / to.abs().sum()).item<double>();
  };
  std::printf("%s, K %ld: 8 bits themselves %.5f", name, static_cast<long>(x.size(1)), l1(of_fp8, exact));
  for (const bool fast : {true, false}) {
    const at::Tensor y =
        at::_scaled_mm(a.values, w.values.t(), a.scale, w.scale.t(), {}, {}, at::kBFloat16, fast).to(at::kDouble);
    std::printf("; %s: sum %.5f, bias %+.5f, in all %.5f", fast ? "fast" : "slow", l1(y, of_fp8),
                ((y - of_fp8).sum() / of_fp8.abs().sum()).item<double>(), l1(y, exact));
  }
  std::printf("\n");
}

int print_all_sums() {
  for (const int64_t k : {1920, 7680, 13824}) {
    const at::Tensor x = at::randn({512, k}, on_gpu()), weight = at::randn({1024, k}, on_gpu());
    print_sums("normal", x, weight);
    print_sums("GELU of normal", at::gelu(x * 2, "tanh"), weight);
    print_sums("GELU of normal, positive weights", at::gelu(x * 2, "tanh"), weight.abs());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2 || (arguments[0] != "sums" && !kShapes.contains(arguments[0]))) {
    std::fprintf(stderr, "usage: %s cogvideox-2b|cogvideox-5b|wan-1.3b|wan-14b|sums REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] {
    const c10::InferenceMode inference;
    if (arguments[0] == "sums") return print_all_sums();
    std::printf("%s\n", arguments[0].c_str());
    return time_model(kShapes.at(arguments[0]), std::stol(arguments[1]));
  });
}
