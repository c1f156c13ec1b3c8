// bench_layers HEADS LAYERS ROTARY DTYPE REPETITIONS: times the pieces of one CogVideoX forward at 49 x 480 x 720 with
// guidance (2 x 17776 tokens), with random weights on a GPU. Prints milliseconds and GB/s of each elementwise kernel
// next to a plain copy, milliseconds and TFLOPS of each matmul, and their sum. HEADS LAYERS ROTARY are 30 30 0 for the
// 2b model and 48 42 1 for the 5b model.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cmath>

#include "app/lab/measure/timing.h"
#include "attention/attention.h"
#include "attention/prologue.h"
#include "attention/token_gather.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/residual.h"
#include "models/store/weights/device.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;
using models::Linear;
using models::Norm;

constexpr int64_t kBatch = 2, kVideo = 13 * 30 * 45, kText = 226, kHeadDim = 64, kTime = 512;
constexpr int64_t kTokens = kVideo + kText;
constexpr int64_t kWeightCopies = 8;  // so many copies of the modulations' weights do not fit into L2

struct Sizes {
  int64_t heads, layers, channels;
  bool rotary;
  at::TensorOptions options;

  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, options); }
  Linear layer(int64_t out, int64_t in) const {
    return {random({out, in}) / std::sqrt(static_cast<double>(in)), random({out})};
  }
  at::Tensor activations(int64_t width) const { return random({kBatch, kTokens, width}); }
  double elements() const { return static_cast<double>(kBatch * kTokens * channels); }
};

/// An operation of the forward pass, and a line of the table.
struct Piece {
  std::string name;
  app::TimedCall call;
  double bytes = 0;   // bytes that an elementwise kernel must read and write
  double flops = 0;   // operations of a matmul
  int64_t calls = 0;  // number of calls in a forward; 0 if it is only a comparison
  bool is_matmul = false;
};

struct Block {
  Norm norm;
  Linear qkv, out, feed_forward_in, feed_forward_out;
  std::vector<Linear> modulations;  // kWeightCopies pairs
  models::JointModulation modulation;

  explicit Block(const Sizes& s)
      : norm{s.random({s.channels}), s.random({s.channels})},
        qkv(s.layer(3 * s.channels, s.channels)),
        out(s.layer(s.channels, s.channels)),
        feed_forward_in(s.layer(4 * s.channels, s.channels)),
        feed_forward_out(s.layer(s.channels, 4 * s.channels)) {
    for (int64_t i = 0; i < 2 * kWeightCopies; ++i) modulations.push_back(s.layer(6 * s.channels, kTime));
    const at::Tensor vectors = at::randn({kBatch, 6 * s.channels}, s.options.dtype(at::kFloat)) / 8;
    const std::vector<at::Tensor> v = vectors.chunk(6, 1);
    modulation = {.video = {v[0], v[1], v[2]}, .text = {v[3], v[4], v[5]}};
  }
};

struct Activations {
  at::Tensor x, y, wide, time, positions, cos, sin, order;

  explicit Activations(const Sizes& s)
      : x(s.activations(s.channels)),
        y(s.activations(s.channels)),
        wide(s.activations(4 * s.channels)),
        time(s.random({kBatch, kTime})),
        positions(s.random({kVideo, s.channels})),
        cos(at::rand({kVideo, kHeadDim}, s.options.dtype(at::kFloat))),
        sin(at::rand({kVideo, kHeadDim}, s.options.dtype(at::kFloat))),
        order(at::randperm(kVideo, s.options.dtype(at::kLong))) {}
};

std::vector<Piece> elementwise(const Sizes& s, const Block& block, Activations& a) {
  const double n = 2 * s.elements();  // bytes of all activations in bf16
  const double projected = 2.0 * 2 * 6 * static_cast<double>(s.channels * kTime);
  std::vector<Piece> pieces;
  pieces.push_back({.name = "copy", .call = [&](int64_t) { a.x.copy_(a.y); }, .bytes = 2 * n});
  pieces.push_back({.name = "norm + modulate",
                    .call = [&](int64_t) { layer_norm_modulate(a.x, block.norm, 1e-5, kVideo, block.modulation); },
                    .bytes = 2 * n,
                    .calls = 1});
  pieces.push_back({.name = "gated add + norm + modulate",
                    .call =
                        [&](int64_t) {
                          add_gated_norm_modulate_(a.x, a.y, block.modulation, block.norm, 1e-5, kVideo,
                                                   block.modulation);
                        },
                    .bytes = 4 * n,
                    .calls = 2 * s.layers - 1});
  pieces.push_back({.name = "gated add",
                    .call = [&](int64_t) { add_gated_(a.x, a.y, kVideo, block.modulation); },
                    .bytes = 3 * n,
                    .calls = 1});
  pieces.push_back({.name = "head: norm, norm + modulate",
                    .call =
                        [&](int64_t) {
                          const at::Tensor normed = layer_norm(a.x.narrow(1, 0, kVideo), block.norm, 1e-5);
                          layer_norm_modulate(normed, block.norm, 1e-5, kVideo, block.modulation);
                        },
                    .bytes = 4 * n,
                    .calls = 1});
  pieces.push_back({.name = "modulation vectors, one launch a block",
                    .call =
                        [&](int64_t i) {
                          models::linear_few_rows(a.time, {&block.modulations[2 * i], &block.modulations[2 * i + 1]});
                        },
                    .bytes = projected,
                    .calls = s.layers});
  pieces.push_back({.name = "modulation vectors by torch",
                    .call =
                        [&](int64_t i) {
                          linear(a.time, block.modulations[2 * i]);
                          linear(a.time, block.modulations[2 * i + 1]);
                        },
                    .bytes = projected});
  pieces.push_back({.name = "tokens in: gather of patches, copy, positions",
                    .call =
                        [&](int64_t) {
                          attention::gather_tokens(a.wide.narrow(1, 0, kVideo).narrow(2, 0, kHeadDim), a.order);
                          a.x.narrow(1, 0, kVideo).copy_(a.y.narrow(1, 0, kVideo));
                          if (!s.rotary) a.x.narrow(1, 0, kVideo).add_(a.positions);
                        },
                    .bytes = (s.rotary ? 2 : 4) * n,
                    .calls = 1});
  pieces.push_back({.name = "gather of whole tokens",
                    .call = [&](int64_t) { attention::gather_tokens(a.y.narrow(1, 0, kVideo), a.order); },
                    .bytes = 2 * n * kVideo / kTokens});
  return pieces;
}

attention::Prologue prologue_of(const Sizes& s, const Activations& a) {
  attention::Prologue p;
  p.norm = attention::Prologue::Norm::layer;
  p.q_weight = p.k_weight = at::ones({kHeadDim}, s.options.dtype(at::kFloat));
  p.q_bias = p.k_bias = at::zeros({kHeadDim}, s.options.dtype(at::kFloat));
  if (s.rotary) {
    p.rotary_cos = a.cos;
    p.rotary_sin = a.sin;
    p.rotary_pairs = attention::rotary_pairs(p);
  }
  return p;
}

/// Returns three operations: the norm and rotary embedding of q and k in mode full, and the prepass of mode sparse
/// without and with them.
std::vector<Piece> prologues(const Sizes& s, Activations& a, attention::Workspace& workspace) {
  const at::Tensor qkv = a.wide.narrow(2, 0, 3 * s.channels).view({kBatch, kTokens, 3, s.heads, kHeadDim});
  attention::Context plain{.mode = attention::Mode::sparse, .text_tokens = kText, .only_prepass = true};
  attention::Context normed = plain;
  normed.prologue = prologue_of(s, a);
  const auto prepass = [&workspace, qkv](const attention::Context& context) {
    return [&workspace, qkv, context](int64_t) {
      attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, workspace);
    };
  };
  const double quantized = 9 * s.elements();  // in bytes: reads q, k and v in bf16 and writes 8 bits
  return {{.name = "mode full: q/k norm and rotary",
           .call = [qkv,
                    p = normed.prologue](int64_t) { attention::apply_prologue(p, qkv.select(2, 0), qkv.select(2, 1)); },
           .bytes = 8 * s.elements()},
          {.name = "mode sparse: quantise and select", .call = prepass(plain), .bytes = quantized},
          {.name = "the same with q/k norm and rotary", .call = prepass(normed), .bytes = quantized}};
}

std::vector<Piece> matmuls(const Sizes& s, const Block& block, Activations& a) {
  const double square = 2 * s.elements() * static_cast<double>(s.channels);
  const auto piece = [&](const char* name, const Linear& layer, const at::Tensor& x, double size, int64_t calls) {
    return Piece{.name = name,
                 .call = [&layer, &x](int64_t) { linear(x, layer); },
                 .flops = size * square,
                 .calls = calls,
                 .is_matmul = true};
  };
  std::vector<Piece> pieces = {piece("qkv", block.qkv, a.x, 3, s.layers), piece("out", block.out, a.x, 1, s.layers)};
  pieces.push_back({.name = "feed forward in, bias and GELU in the epilogue",
                    .call = [&](int64_t) { linear_gelu_tanh(a.x, block.feed_forward_in); },
                    .flops = 4 * square,
                    .calls = s.layers,
                    .is_matmul = true});
  pieces.push_back(piece("feed forward in without GELU", block.feed_forward_in, a.x, 4, 0));
  pieces.push_back(
      {.name = "GELU by itself", .call = [&](int64_t) { at::gelu_(a.wide, "tanh"); }, .bytes = 16 * s.elements()});
  pieces.push_back(piece("feed forward out", block.feed_forward_out, a.wide, 4, s.layers));
  return pieces;
}

void print(const std::vector<Piece>& pieces, const std::vector<app::Measurement>& measured) {
  double floor = 0, other = 0, matmul = 0;
  std::printf("| piece | calls a forward | ms | GB/s | of copy | TFLOPS |\n|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (!measured[i].failure.empty()) {
      std::printf("| %s | failed: %s |\n", piece.name.c_str(), measured[i].failure.c_str());
      continue;
    }
    const double ms = app::spread(measured[i].milliseconds).median, speed = piece.bytes / ms / 1e6;
    if (piece.name == "copy") floor = speed;
    (piece.is_matmul ? matmul : other) += ms * static_cast<double>(piece.calls);
    std::printf("| %s | %ld | %.4f | ", piece.name.c_str(), static_cast<long>(piece.calls), ms);
    if (piece.bytes > 0) std::printf("%.0f | %.0f%% | |\n", speed, 100 * speed / floor);
    if (piece.flops > 0) std::printf("| | %.0f |\n", piece.flops / ms / 1e9);
  }
  std::printf("\na forward: elementwise %.2f ms, matmul %.2f ms\n", other, matmul);
}

/// Shows how far the host runs ahead of the GPU. Prints the time to enqueue the launches of a forward without
/// attention, and the time until the GPU has run them.
void print_host_time(const Sizes& s, const Block& block, Activations& a) {
  const auto forward = [&] {
    models::Residual hidden(a.x, kVideo);
    for (int64_t i = 0; i < s.layers; ++i) {
      models::linear_few_rows(a.time, {&block.modulations[0], &block.modulations[1]});
      at::Tensor x = hidden.norm_modulate(block.norm, 1e-5, block.modulation);
      x = linear(x, block.qkv).narrow(2, 0, s.channels).contiguous();
      hidden.add(linear(x, block.out), block.modulation);
      x = hidden.norm_modulate(block.norm, 1e-5, block.modulation);
      hidden.add(linear(linear_gelu_tanh(x, block.feed_forward_in), block.feed_forward_out), block.modulation);
    }
  };
  app::Timer timer(s.options.device());
  for (int round = 0; round < 2; ++round) {
    timer.time(forward);
    timer.finish();
  }
  const auto start = std::chrono::steady_clock::now();
  timer.time(forward);
  const double host = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::printf("blocks without attention, %ld of them: enqueued in %.2f ms, done in %.2f ms\n",
              static_cast<long>(s.layers), host, timer.finish()[0]);
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const auto dtype = models::resolve_dtype(arguments[3], at::kCUDA, at::kBFloat16);
  const Sizes s = {.heads = std::stol(arguments[0]),
                   .layers = std::stol(arguments[1]),
                   .channels = kHeadDim * std::stol(arguments[0]),
                   .rotary = arguments[2] == "1",
                   .options = at::TensorOptions().device(models::resolve_device("cuda:0")).dtype(dtype)};
  const Block block(s);
  Activations activations(s);
  std::vector<Piece> pieces = elementwise(s, block, activations);
  attention::Workspace workspace;
  for (Piece& piece : prologues(s, activations, workspace)) pieces.push_back(std::move(piece));
  for (Piece& piece : matmuls(s, block, activations)) pieces.push_back(std::move(piece));
  std::vector<app::TimedCall> calls;
  for (const Piece& piece : pieces) calls.push_back(piece.call);
  app::Timer timer(s.options.device());
  const auto measured = alternate(
      calls, {.warmup = 3, .repetitions = std::stol(arguments[4]), .buffers = kWeightCopies}, timer, [](int64_t) {});
  print(pieces, measured);
  print_host_time(s, block, activations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 5) {
    std::fprintf(stderr, "usage: %s HEADS LAYERS ROTARY DTYPE REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
