// Computes the attention in the blocks of a diffusion transformer.
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

/// Tokens, and the layer [3 * heads * head_dim, C] that projects them to queries, keys and values.
struct AttentionInput {
  std::optional<Activation> x;  // [B, tokens, C]; nullopt if there are no tokens
  const Linear* qkv = nullptr;
};

struct Heads {
  int64_t count = 0, dim = 0;
};

/// Runs the attention of one forward pass, layer by layer. The constructor's arguments must outlive this object.
class Attend {
 public:
  /// `key_lengths`, int64 [B], has each batch entry's number of keys before the padding: the video tokens of the plan's
  /// slice plus the text tokens. Undefined if there is no padding.
  Attend(AttentionRun& run, const TokenPlan& plan, int64_t text_tokens, attention::Workspace& workspace,
         const at::Tensor& key_lengths = {});

  void begin_layer(size_t layer);
  /// Projects the tokens and attends. `tokens` has the plan's slice of the video tokens, in the plan's order, then the
  /// text. If another layer projects the text, `tokens` has only the video and `text` the text. Both are freed before
  /// attention, which needs the most memory of a block. Returns [B, N, heads * head_dim]. It is in e4m3 if `reader`,
  /// the layer that takes the result, has e4m3 weights and the kernel can write e4m3. The caller sets the norms of the
  /// prologue; this function sets the plan's rotary positions. If ranks share the tokens, each rank attends with some
  /// of the heads, and the result is valid only until the next call.
  Activation operator()(AttentionInput tokens, const Heads& heads, attention::Prologue prologue,
                        const Linear& reader = {}, AttentionInput text = {});
  /// Returns linear(cross-attention, out), [B, N, out], on this rank alone. k and v are [B, L, heads, head_dim] of a
  /// context, with the bias of its padding (text_padding.h). Cross-attention computes every block. Watchers and
  /// statistics leave it out.
  at::Tensor cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, attention::Prologue prologue,
                   const at::Tensor& key_bias, const Linear& out);
  /// Returns linear(the sum of two cross-attentions, out), for two contexts, each with a softmax over its own keys. The
  /// prologue is applied to q and to the first context's keys k. The keys in `second` must already have it applied.
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
  attention::CallPolicy policy_;  // the policy of all heads of the layer, on whichever rank they are
  int64_t layer_ = 0;
};

}  // namespace sparsereel::models
