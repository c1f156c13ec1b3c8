// Runs the attention calls of a block: projects the tokens, calls the watcher, attends, and adds up statistics.
#include "models/transformer/attend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "attention/prologue.h"
#include "models/transformer/few_keys_product.h"
#include "models/transformer/head_exchange.h"

namespace sparsereel::models {
namespace {

/// Projects tokens and text, each by its own layer, into one tensor [B, N, outputs]. Concatenating two results would
/// take another copy.
at::Tensor project(const AttentionInput& tokens, const AttentionInput& text, int64_t outputs) {
  const Activation& x = tokens.x.value();
  if (!text.x) return linear(x, *tokens.qkv);
  const int64_t own = x.sizes()[1], others = text.x->sizes()[1];
  const at::Tensor rows = at::empty({x.sizes()[0], own + others, outputs}, x.values.options().dtype(x.dtype));
  linear_out(rows.narrow(1, 0, own), x, *tokens.qkv);
  linear_out(rows.narrow(1, own, others), *text.x, *text.qkv);
  return rows;
}

/// Projects the tokens to queries (part 0), keys (1) or values (2).
at::Tensor project_part(const AttentionInput& tokens, const AttentionInput& text, int64_t part, int64_t outputs) {
  const Linear of_tokens = tokens.qkv->outputs(part * outputs, outputs);
  const Linear of_text = text.x ? text.qkv->outputs(part * outputs, outputs) : Linear{};
  return project({.x = tokens.x, .qkv = &of_tokens}, {.x = text.x, .qkv = &of_text}, outputs);
}

/// Returns the result's rows as an Activation. `dtype` is the run's dtype.
Activation rows_of(const attention::Result& result, at::ScalarType dtype) {
  const at::Tensor rows = result.out.flatten(2);
  if (!result.out_scale.defined()) return rows;
  return {rows, result.out_scale.unsqueeze(1).expand({-1, rows.size(1)}).contiguous().view({-1, 1}), dtype};
}

}  // namespace

Attend::Attend(AttentionRun& run, const TokenPlan& plan, int64_t text_tokens, attention::Workspace& workspace,
               const at::Tensor& key_lengths)
    : run_(run), plan_(plan), workspace_(workspace) {
  context_.key_lengths = key_lengths;
  if (const int64_t others = plan.grid.size() - plan.slice.count; key_lengths.defined() && others > 0)
    context_.key_lengths = key_lengths + others;
  context_.mode = run.mode;
  context_.text_tokens = text_tokens;
  begin_layer(0);
}

void Attend::begin_layer(size_t layer) {
  layer_ = static_cast<int64_t>(layer);
  policy_ = run_.policy.at(layer_, run_.step);
  context_.policy = policy_;
  context_.slot = layer_;
}

void Attend::place(attention::Prologue prologue) {
  context_.prologue = std::move(prologue);
  context_.prologue.rotary_cos = plan_.rotary.cos;
  context_.prologue.rotary_sin = plan_.rotary.sin;
  context_.prologue.rotates_text = plan_.rotates_text;
  context_.prologue.rotary_pairs = plan_.rotary_pairs;
  context_.prologue.rotary_positions = plan_.rotary_by_head.positions;
  context_.prologue.rotary_frequencies = plan_.rotary_by_head.frequencies;
}

attention::Result Attend::run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Linear& reader) {
  if (run_.watcher)
    run_.watcher({.q = q, .k = k, .v = v, .context = context_, .grid = plan_.grid, .layer = layer_, .step = run_.step});
  context_.takes_e4m3 = reader.is_fp8();
  // The output may replace the queries in memory, except in three cases: a watcher may keep the queries; a result that
  // becomes 8-bit rows would first need a copy; and if ranks share the tokens, the queries are a view of rows that
  // ranks exchange.
  context_.may_overwrite_q = !run_.watcher && !reader.is_fp8() && plan_.group == nullptr;
  attention::Result result = attention::attend(q, k, v, context_, workspace_);
  // Watchers get this context; they may repeat the call, and do not take e4m3.
  context_.takes_e4m3 = false;
  if (run_.attended) run_.attended();
  run_.per_layer[static_cast<size_t>(layer_)] += result.statistics;
  run_.kernel = result.kernel;
  return result;
}

/// Narrows the context from all heads of the layer (`all`) to the heads of this rank.
void Attend::narrow_to(const Slice& heads, int64_t all) {
  const auto some = [&](at::Tensor& x, int64_t size) {
    if (x.defined()) x = x.narrow(0, heads.first * size, heads.count * size);
  };
  attention::Prologue& prologue = context_.prologue;
  if (prologue.across_heads) {
    for (at::Tensor* x : {&prologue.q_weight, &prologue.q_bias, &prologue.k_weight, &prologue.k_bias})
      if (x->defined()) some(*x, x->size(0) / all);
  }
  some(prologue.rotary_frequencies, 1);
  const auto& policies = policy_.heads;
  context_.policy = policy_;
  if (!policies.empty())
    context_.policy.heads = policies.subspan(static_cast<size_t>(heads.first), static_cast<size_t>(heads.count));
  const bool alike = std::ranges::all_of(policies, [&](const auto& policy) { return policy == policies.front(); });
  context_.part = attention::HeadPart{.first = heads.first, .all = all, .alike = alike, .sum = {}};
}

/// Returns the result for this rank's tokens, [B, N, heads, head_dim].
at::Tensor Attend::run_own_heads(AttentionInput tokens, AttentionInput text, const Heads& heads) {
  const at::TensorOptions options = tokens.x->values.options().dtype(tokens.x->dtype);
  const auto layer_of = [](const AttentionInput& of) { return of.x->is_int8() ? *of.qkv : of.qkv->in(of.x->dtype); };
  Linear of_tokens = layer_of(tokens), of_text = text.x ? layer_of(text) : Linear{};
  tokens.qkv = &of_tokens;
  text.qkv = &of_text;
  attention::Prologue& prologue = context_.prologue;
  const HeadExchange exchange(*plan_.group,
                              {.batch = tokens.x->sizes()[0],
                               .video_tokens = plan_.grid.size(),
                               .text_tokens = context_.text_tokens,
                               .heads = heads.count,
                               .head_dim = heads.dim,
                               .has_moments = prologue.across_heads && prologue.norm != attention::Prologue::Norm::none,
                               .options = options});
  const AttentionRows own = exchange.to_heads(
      [&](int64_t part) {
        return project_part(tokens, text, part, heads.count * heads.dim).unflatten(2, {heads.count, heads.dim});
      },
      [&](const at::Tensor& x) { return attention::token_moments(prologue, x); });
  tokens.x.reset();
  text.x.reset();
  of_tokens = of_text = {};
  narrow_to(exchange.heads(), heads.count);
  context_.part->sum = [group = plan_.group, device = options.device()](int64_t* counts, int64_t count) {
    group->all_reduce_sum(at::from_blob(counts, {count}, at::TensorOptions().dtype(at::kLong).device(device)));
  };
  prologue.q_moments = own.q_moments;
  prologue.k_moments = own.k_moments;
  const attention::Result result = run(own.q, own.k, own.v, {});
  run_.kernel += ", heads of " + std::to_string(plan_.group->size()) + " ranks";
  return exchange.to_tokens(result.out);
}

Activation Attend::operator()(AttentionInput tokens, const Heads& heads, attention::Prologue prologue,
                              const Linear& reader, AttentionInput text) {
  place(std::move(prologue));
  if (plan_.group != nullptr) return run_own_heads(std::move(tokens), std::move(text), heads).flatten(2);
  const at::Tensor qkv = project(tokens, text, 3 * heads.count * heads.dim).unflatten(2, {3, heads.count, heads.dim});
  tokens.x.reset();
  text.x.reset();
  return rows_of(run(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), reader), qkv.scalar_type());
}

at::Tensor Attend::cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, attention::Prologue prologue,
                         const at::Tensor& key_bias, const Linear& out) {
  const attention::Context context = {
      .key_bias = key_bias, .takes_e4m3 = out.is_fp8(), .prologue = std::move(prologue)};
  if (is_less_work(v, out) && k.sizes() == v.sizes()) {
    if (const auto weights = attention::attention_weights(q, k, context)) return linear_of_weights(*weights, v, out);
  }
  return linear(rows_of(attention::attend(q, k, v, context, workspace_), q.scalar_type()), out);
}

// The results are added before the output layer. This takes a pass over memory, but saves a second product with the
// layer. linear_of_weights() is not used even if the first context is short: the second context has many keys.
at::Tensor Attend::cross(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const attention::Prologue& prologue, const at::Tensor& key_bias, const KeysAndValues& second,
                         const Linear& out) {
  const auto first = attention::apply_prologue(prologue, q, k);
  const auto rows = [&](const at::Tensor& keys, const at::Tensor& values, const at::Tensor& bias) {
    return attention::attend(first.q, keys, values, {.key_bias = bias}, workspace_).out.flatten(2);
  };
  const auto each = [&](const at::Tensor& x) { return x.expand({q.size(0), -1, -1, -1}); };
  return linear(rows(first.k, v, key_bias).add_(rows(each(second.k), each(second.v), {})), out);
}

}  // namespace sparsereel::models
