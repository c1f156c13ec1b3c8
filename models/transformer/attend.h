// Attention in the blocks of a diffusion transformer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "attention/attention.h"
#include "models/layers/linear.h"
#include "models/request/attention_run.h"
#include "models/transformer/context_keys.h"
#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// Tokens, and the layer [3 x heads x head_dim, C] that makes their queries, keys and values.
struct AttentionInput {
  std::optional<Activation> x;  // [B, tokens, C]; nothing: there are none
  const Linear* qkv = nullptr;
};

struct Heads {
  int64_t count = 0, dim = 0;
};

/// The attention of one forward's blocks, layer after layer. What it refers to must outlive it.
class Attend {
 public:
  /// key_lengths: int64 [B], keys behind which there is padding, counted in the plan's slice of the video's tokens and
  /// the text's; undefined: none.
  Attend(AttentionRun& run, const TokenPlan& plan, int64_t text_tokens, attention::Workspace& workspace,
         const at::Tensor& key_lengths = {});

  void begin_layer(size_t layer);
  /// Of the plan's slice of the video tokens in its order, then text: `tokens` are both, or the video's, where a layer
  /// of its own projects the text. They are let go of before attention, which needs the most memory of a block.
  /// Returns [B, N, heads x head_dim], in e4m3 if `reader`, the layer that multiplies it, has 8-bit weights and the
  /// kernel can write that. The family fills in the prologue's norms; the plan's rotary positions are added here. Where
  /// ranks share the tokens, each attends with some of the heads, and the next call overwrites what is returned.
  Activation operator()(AttentionInput tokens, const Heads& heads, attention::Prologue prologue,
                        const Linear& reader = {}, AttentionInput text = {});
  /// linear(cross-attention, out), without any exchange: k and v [B, L, heads, head_dim] of a context, with the bias of
  /// its padding (text_padding.h). Always dense, neither watched nor counted. Returns [B, N, out].
  at::Tensor cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, attention::Prologue prologue,
                   const at::Tensor& key_bias, const Linear& out);
  /// The same of two contexts with a softmax each, whose results are added: the second's keys are through their
  /// prologue, and q goes through one only once.
  at::Tensor cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const attention::Prologue& prologue,
                   const at::Tensor& key_bias, const KeysAndValues& second, const Linear& out);

 private:
  void place(attention::Prologue prologue);
  attention::Result run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Linear& reader);
  at::Tensor run_own_heads(AttentionInput tokens, AttentionInput text, const Heads& heads);
  void narrow_to(const Slice& heads, int64_t all);

  AttentionRun& run_;
  const TokenPlan& plan_;
  attention::Workspace& workspace_;
  attention::Context context_;
  attention::CallPolicy policy_;  // of the layer's heads, of all ranks
  int64_t layer_ = 0;
};

}  // namespace sparsereel::models
