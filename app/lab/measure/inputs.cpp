// Generates random inputs.
//
// `structured` draws each head separately, so that quantization and block selection are measured on data like those of
// a trained model. With t the position of a token in the sequence:
//   q = smooth + a F(t) + mean_q            mean_q  ~ 0.5 N(0, 1) per channel
//   k = (smooth + a F(t)) . g + mean_k      mean_k  ~ 2 N(0, 1) per channel, as K's mean dwarfs its spread in models
//   v = smooth . g + mean_v                 mean_v  ~ 0.5 N(0, 1) per channel
// smooth: random with unit variance; 16 neighboring tokens share half of it, so that blocks resemble their mean.
// g: 1, except for D / 32 outlier channels of K (x 3) and V (x 6), drawn for each head.
// F(t): cos and sin of D / 2 angles w t, with periods spread logarithmically from 32 tokens to 4 N. F(s) . F(t) falls
// with |s - t|, so attention gathers near the diagonal. `a` raises the logit at s = t by 4 (a diffuse head) to 16 (a
// local head); each head draws this rise uniformly. If several heads of q share a head of k and v, k and v use the `a`
// of the first of these heads.
//
// The data kind `smooth` equals `structured` except for V, which changes slowly, like features of a video:
//   v = cos(w t + phase) + 0.2 N(0, 1)      for each channel a period of N / 8 to N tokens and a phase
// It shows losses of precision in P.V where long sums have terms of equal sign. Other data hardly show these losses.
//
// `loud` is `gaussian` data except for four channels, which hold most of K's energy, as in trained models. Before the
// rotary embedding, k is +-30 in these channels for every token, and q is 0.3 N(0, 1).
#include "app/lab/measure/inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "attention/prologue.h"

namespace sparsereel::app {
namespace {

constexpr double kBeyondCache = 200e6;
constexpr int64_t kMostCopies = 256;

/// Returns `smooth`, [N, D].
at::Tensor smooth_tokens(int64_t tokens, int64_t head_dim, const at::TensorOptions& options) {
  constexpr int64_t group = 16;
  const at::Tensor shared = at::randn({(tokens + group - 1) / group, head_dim}, options);
  const at::Tensor own = at::randn({tokens, head_dim}, options);
  return (shared.repeat_interleave(group, 0).narrow(0, 0, tokens) + own) * std::sqrt(0.5);
}

/// Returns F(t) [N, D]; an odd last channel is 0.
at::Tensor position_features(int64_t tokens, int64_t head_dim, const at::TensorOptions& options) {
  const int64_t angles = head_dim / 2;
  const double shortest = 32, longest = std::max(64.0, 4.0 * static_cast<double>(tokens));
  const at::Tensor periods = at::logspace(std::log10(shortest), std::log10(longest), angles, 10, options);
  const at::Tensor phase = at::arange(tokens, options).unsqueeze(1) * (2 * M_PI / periods).unsqueeze(0);
  at::Tensor features = at::zeros({tokens, head_dim}, options);
  features.narrow(1, 0, angles).copy_(phase.cos());
  features.narrow(1, angles, angles).copy_(phase.sin());
  return features;
}

/// Returns `g`, [D]: 1, and `gain` in D / 32 random channels.
at::Tensor outlier_gains(int64_t head_dim, double gain, const at::TensorOptions& options) {
  at::Tensor gains = at::ones({head_dim}, options);
  const at::Tensor channels = at::randperm(head_dim, options.dtype(at::kLong)).narrow(0, 0, (head_dim + 31) / 32);
  return gains.index_fill_(0, channels, gain);
}

/// Returns V [N, D] of the data kind `smooth`.
at::Tensor slow_values(int64_t tokens, int64_t head_dim, const at::TensorOptions& options) {
  const at::Tensor periods = (1 + 7 * at::rand({head_dim}, options)) * (static_cast<double>(tokens) / 8);
  const at::Tensor phase = 2 * M_PI * at::rand({head_dim}, options);
  const at::Tensor angle = at::arange(tokens, options).unsqueeze(1) * (2 * M_PI / periods) + phase;
  return angle.cos() + 0.2 * at::randn({tokens, head_dim}, options);
}

/// Draws q, k and v of one head, [N, D] each, and writes them into `inputs`.
void fill_head(const Inputs& inputs, DataKind data, int64_t batch, int64_t head, const at::Tensor& features) {
  const int64_t group = inputs.q.size(2) / inputs.k.size(2);
  const at::TensorOptions options = features.options();
  const int64_t tokens = features.size(0), head_dim = features.size(1);
  const double rise = 4 + 12 * at::rand({1}).item<double>();
  // The logit's rise at s = t is a^2 F(t) . F(t) D^-0.5 = a^2 D^0.5 / 2.
  const at::Tensor local = features * std::sqrt(2 * rise / std::sqrt(static_cast<double>(head_dim)));
  const auto smooth = [&] { return smooth_tokens(tokens, head_dim, options); };
  const auto mean = [&](double size) { return at::randn({head_dim}, options) * size; };
  const auto place = [&](const at::Tensor& target, const at::Tensor& values) {
    target.select(0, batch).select(1, head * target.size(2) / inputs.q.size(2)).copy_(values);
  };
  place(inputs.q, smooth() + local + mean(0.5));
  if (head % group != 0) return;
  place(inputs.k, (smooth() + local) * outlier_gains(head_dim, 3, options) + mean(2));
  place(inputs.v, data == DataKind::smooth ? slow_values(tokens, head_dim, options)
                                           : smooth() * outlier_gains(head_dim, 6, options) + mean(0.5));
}

/// Returns the rotary embedding of pairs (2i, 2i + 1) by angles t / 10000^(2i / D).
attention::Prologue rotary(int64_t tokens, int64_t head_dim, const at::TensorOptions& options) {
  const at::Tensor frequencies = at::pow(1e4, at::arange(0, head_dim, 2, options) / -static_cast<double>(head_dim));
  const at::Tensor angles = at::arange(tokens, options).unsqueeze(1) * frequencies.repeat_interleave(2);
  attention::Prologue prologue;
  prologue.rotary_cos = angles.cos();
  prologue.rotary_sin = angles.sin();
  return prologue;
}

/// Turns q and k [B, N, H, D] of `gaussian` data into `loud` data: changes four channels (two pairs of the rotary
/// embedding).
void make_loud(Inputs& inputs) {
  const int64_t head_dim = inputs.q.size(3), padded = head_dim + head_dim % 2;  // even, so that all channels form pairs
  at::Tensor q = at::pad(inputs.q, {0, padded - head_dim}), k = at::pad(inputs.k, {0, padded - head_dim});
  for (const int64_t pair : {int64_t{1}, head_dim / 4}) {
    q.narrow(3, 2 * pair, 2).mul_(0.3);
    k.select(3, 2 * pair).add_(30);
    k.select(3, 2 * pair + 1).sub_(30);
  }
  const auto rotated = attention::apply_prologue(rotary(q.size(1), padded, q.options().dtype(at::kFloat)), q, k);
  inputs.q = rotated.q.narrow(3, 0, head_dim).contiguous();
  inputs.k = rotated.k.narrow(3, 0, head_dim).contiguous();
}

Inputs make_one(const Shape& shape, DataKind data, const at::TensorOptions& options) {
  const std::vector<int64_t> sizes = {shape.batch, shape.tokens, shape.heads, shape.head_dim};
  const std::vector<int64_t> key_sizes = {shape.batch, shape.tokens, shape.heads_of_keys(), shape.head_dim};
  if (data == DataKind::gaussian || data == DataKind::loud) {
    at::Tensor q = at::randn(sizes, options), k = at::randn(key_sizes, options), v = at::randn(key_sizes, options);
    Inputs inputs{.q = std::move(q), .k = std::move(k), .v = std::move(v)};
    if (data == DataKind::loud) make_loud(inputs);
    return inputs;
  }
  Inputs inputs{.q = at::empty(sizes, options), .k = at::empty(key_sizes, options), .v = at::empty(key_sizes, options)};
  const at::Tensor features = position_features(shape.tokens, shape.head_dim, options.dtype(at::kFloat));
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h) fill_head(inputs, data, b, h, features);
  return inputs;
}

}  // namespace

double input_bytes(const Shape& shape, at::ScalarType dtype, int64_t copies) {
  return (shape.elements() + 2 * shape.key_elements()) * static_cast<double>(c10::elementSize(dtype)) *
         static_cast<double>(copies);
}

int64_t copies_beyond_cache(const Shape& shape, at::ScalarType dtype) {
  const double copies = std::ceil(kBeyondCache / input_bytes(shape, dtype, 1));
  return static_cast<int64_t>(std::clamp(copies, 1.0, static_cast<double>(kMostCopies)));
}

std::vector<Inputs> make_inputs(const Shape& shape, DataKind data, at::ScalarType dtype, at::Device device,
                                int64_t copies, uint64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  std::vector<Inputs> inputs;
  inputs.reserve(static_cast<size_t>(copies));
  for (int64_t i = 0; i < copies; ++i) inputs.push_back(make_one(shape, data, options));
  return inputs;
}

}  // namespace sparsereel::app
