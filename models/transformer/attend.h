// The attention in the blocks of a diffusion transformer.
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

/// Tokens, and the layer [3 x heads x head_dim, C] that projects the tokens to queries, keys and values.
struct AttentionInput {
  std::optional<Activation> x;  // [B, tokens, C]; nothing if there are no tokens
  const Linear* qkv = nullptr;
};

struct Heads {
  int64_t count = 0, dim = 0;
};

/// Runs the attention of one forward pass, layer by layer. Everything that it refers to must outlive it.
class Attend {
 public:
  /// `key_lengths`, int64 [B], are the numbers of keys before the padding. They count the plan's slice of the video
  /// tokens and the text tokens. If undefined, there is no padding.
  Attend(AttentionRun& run, const TokenPlan& plan, int64_t text_tokens, attention::Workspace& workspace,
         const at::Tensor& key_lengths = {});

  void begin_layer(size_t layer);
  /// Projects the tokens and attends: the plan's slice of the video tokens in its order, then text. `tokens` holds
  /// both, or only the video tokens if a separate layer projects `text`. Both are released before attention, which
  /// needs the most memory of a block. Returns [B, N, heads x head_dim], in e4m3 if `reader`, the layer that multiplies
  /// the result, has 8-bit weights and the kernel can write e4m3. The family fills in the prologue's norms; the plan's
  /// rotary positions are added here. If ranks share the tokens, each rank attends with some of the heads, and the next
  /// call overwrites the result.
  Activation operator()(AttentionInput tokens, const Heads& heads, attention::Prologue prologue,
                        const Linear& reader = {}, AttentionInput text = {});
  /// Returns linear(cross-attention, out), [B, N, out], on this rank alone. k and v are [B, L, heads, head_dim] of a
  /// context, with the bias of its padding (text_padding.h). Cross-attention computes every block; no watcher sees it,
  /// and no statistics count it.
  at::Tensor cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, attention::Prologue prologue,
                   const at::Tensor& key_bias, const Linear& out);
  /// Returns linear(cross-attention, out) for two contexts, each with its own softmax, whose results are added. The
  /// prologue is applied to q and the first context's keys; it must have been applied to the second context's keys
  /// before.
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
  attention::CallPolicy policy_;  // policy for the layer's heads on all ranks
  int64_t layer_ = 0;
};

}  // namespace sparsereel::models
