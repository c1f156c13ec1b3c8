// Tests the prologue of attend() on a CPU: compares norms and rotary embeddings with their formulas.
#include "attention/prologue.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

TEST(Prologue, NormalizesFewerHeadsOfKeys) {
  for (const bool across : {false, true}) {
    const Inputs x = with_fewer(Inputs(200, 64, at::kFloat, 6), 2);
    Context context;
    context.prologue.norm = Prologue::Norm::rms;
    context.prologue.across_heads = across;
    context.prologue.q_weight = at::rand({across ? 6 * 64 : 64});
    context.prologue.k_weight = at::rand({across ? 2 * 64 : 64});
    Context of_all = context;
    if (across) of_all.prologue.k_weight = context.prologue.k_weight.view({2, 64}).repeat_interleave(3, 0).flatten();
    for (const Mode mode : {Mode::full, Mode::sparse}) {
      context.mode = of_all.mode = mode;
      EXPECT_LE(max_error(run(x, context).out, run(repeated(x), of_all).out), 1e-5);
    }
    context.prologue.k_weight = at::rand({5});
    EXPECT_THROW(run(x, context), Error);
  }
}

/// Computes the prologue with torch operations in double.
at::Tensor prologue_by_hand(const Prologue& p, at::Tensor x, const at::Tensor& weight, const at::Tensor& bias,
                            int64_t text) {
  x = x.to(at::kDouble);
  if (p.norm != Prologue::Norm::none) {
    const auto dims = p.across_heads ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3};
    if (p.norm == Prologue::Norm::layer) x = x - x.mean(dims, true);
    x = x / (x.square().mean(dims, true) + p.eps).sqrt();
    const auto shape = p.across_heads ? std::vector<int64_t>{x.size(2), x.size(3)} : std::vector<int64_t>{x.size(3)};
    if (weight.defined()) x = x * weight.view(shape);
    if (bias.defined()) x = x + bias.view(shape);
  }
  if (!p.rotary_cos.defined()) return x.to(at::kFloat);
  x = x.clone();
  const int64_t dim = x.size(3), video = x.size(1) - text;
  const at::Tensor before = x.clone();
  for (int64_t i = 0; i < dim / 2; ++i) {
    const int64_t a = p.interleaved ? 2 * i : i, b = p.interleaved ? 2 * i + 1 : i + dim / 2;
    const auto part = [&](const at::Tensor& t, int64_t d) { return t.select(3, d).narrow(1, 0, video); };
    const auto table = [&](const at::Tensor& t, int64_t d) { return t.select(1, d).view({1, video, 1}); };
    part(x, a).copy_(part(before, a) * table(p.rotary_cos, a) - part(before, b) * table(p.rotary_sin, a));
    part(x, b).copy_(part(before, b) * table(p.rotary_cos, b) + part(before, a) * table(p.rotary_sin, b));
  }
  return x.to(at::kFloat);
}

TEST(Prologue, MatchesTheFormulasOfNormsAndRotaryEmbeddings) {
  const Inputs x(90, 40);
  const int64_t text = 12;
  for (const auto norm : {Prologue::Norm::none, Prologue::Norm::layer, Prologue::Norm::rms})
    for (const bool across : {false, true})
      for (const bool interleaved : {false, true})
        for (const bool rotary : {false, true}) {
          Context context;
          context.text_tokens = text;
          Prologue& p = context.prologue;
          p.norm = norm;
          p.across_heads = across;
          p.interleaved = interleaved;
          p.eps = 1e-3;
          at::manual_seed(9);
          if (norm != Prologue::Norm::none) {
            const int64_t size = across ? 120 : 40;
            p.q_weight = at::randn({size});
            p.k_weight = at::randn({size});
            p.k_bias = at::randn({size});
          }
          if (rotary) {
            p.rotary_cos = at::randn({90 - text, 40});
            p.rotary_sin = at::randn({90 - text, 40});
          }
          Inputs by_hand(90, 40);
          by_hand.q = prologue_by_hand(p, x.q, p.q_weight, p.q_bias, text);
          by_hand.k = prologue_by_hand(p, x.k, p.k_weight, p.k_bias, text);
          Context plain;
          plain.text_tokens = text;
          EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
          context.mode = plain.mode = Mode::sparse;
          context.policy.defaults.topk = plain.policy.defaults.topk = 1;
          EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
          // fp16 takes the torch operations that other devices and dtypes use.
          Inputs half(90, 40, at::kHalf);
          context.mode = Mode::full;
          EXPECT_LE(relative_l1(run(half, context).out.to(at::kFloat), run(x, context).out), 0.02);
        }
}

TEST(Prologue, RotatesTextTokensToo) {
  const Inputs x(90, 40);
  const int64_t text = 12;
  Context context;
  context.text_tokens = text;
  Prologue& p = context.prologue;
  p.norm = Prologue::Norm::rms;
  p.q_weight = at::randn({40}), p.k_weight = at::randn({40});
  p.rotary_cos = at::randn({90, 40}), p.rotary_sin = at::randn({90, 40});
  p.rotates_text = true;
  Inputs by_hand(90, 40);
  by_hand.q = prologue_by_hand(p, x.q, p.q_weight, p.q_bias, 0);
  by_hand.k = prologue_by_hand(p, x.k, p.k_weight, p.k_bias, 0);
  Context plain;
  plain.text_tokens = text;
  EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
  context.mode = plain.mode = Mode::sparse;
  EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 2e-5);
  p.text_q_weight = p.text_k_weight = at::randn({40});
  EXPECT_THROW(run(x, context), Error) << "weights of text tokens with rotated text tokens";
  p.text_q_weight = p.text_k_weight = at::Tensor();
  p.rotates_text = false;
  EXPECT_THROW(run(x, context), Error) << "tables of all tokens without rotates_text";
}

/// Computes the prologue of q or k in double for norm weights that differ by token and angles that differ by head.
at::Tensor parts_by_hand(const Prologue& p, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& of_text,
                         int64_t text) {
  const int64_t video = x.size(1) - text;
  const at::Tensor wide = x.to(at::kDouble), normed = wide / (wide.square().mean({3}, true) + p.eps).sqrt();
  at::Tensor head = normed.narrow(1, 0, video) * weight;
  const at::Tensor tail = normed.narrow(1, video, text) * (of_text.defined() ? of_text : weight);
  if (p.rotary_frequencies.defined()) {
    const at::Tensor angles = at::einsum(
        "na,had->nhd", {p.rotary_positions.narrow(1, 0, 3).to(at::kDouble), p.rotary_frequencies.to(at::kDouble)});
    const at::Tensor even = head.slice(3, 0, c10::nullopt, 2), odd = head.slice(3, 1, c10::nullopt, 2);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    head = at::stack({even * cos - odd * sin, even * sin + odd * cos}, 4).flatten(3);
  }
  return at::cat({head, tail}, 1).to(at::kFloat);
}

TEST(Prologue, AppliesSeparateTextWeightsAndAnglesPerHead) {
  const Inputs x(90, 40);
  for (const int64_t text : {0, 12, 90})
    for (const bool weights : {false, true})
      for (const bool angles : {false, true}) {
        SCOPED_TRACE(::testing::Message() << text << " text tokens" << weights << angles);
        Context context;
        context.text_tokens = text;
        Prologue& p = context.prologue;
        p.norm = Prologue::Norm::rms;
        p.eps = 1e-5;
        at::manual_seed(9);
        p.q_weight = at::randn({40}), p.k_weight = at::randn({40});
        if (weights) p.text_q_weight = at::randn({40}), p.text_k_weight = at::randn({40});
        if (angles) {
          p.rotary_positions = at::randn({90 - text, 4}) * 20;
          p.rotary_frequencies = at::randn({3, 3, 20});
        }
        Inputs by_hand(90, 40);
        by_hand.q = parts_by_hand(p, x.q, p.q_weight, p.text_q_weight, text);
        by_hand.k = parts_by_hand(p, x.k, p.k_weight, p.text_k_weight, text);
        Context plain;
        plain.text_tokens = text;
        EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 1e-4);
        context.mode = plain.mode = Mode::sparse;
        context.policy.defaults.topk = plain.policy.defaults.topk = 1;
        EXPECT_LE(max_error(run(x, context).out, run(by_hand, plain).out), 1e-4);
        // fp16 takes the torch operations that other devices and dtypes use.
        Inputs half(90, 40, at::kHalf);
        context.mode = Mode::full;
        EXPECT_LE(relative_l1(run(half, context).out.to(at::kFloat), run(x, context).out), 0.02);
      }
}

}  // namespace
}  // namespace sparsereel::attention
