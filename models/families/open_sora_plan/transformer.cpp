// Open-Sora-Plan 1.2.0 (PKU-YuanGroup, 2024): PixArt's blocks (arXiv 2310.00426) of self-attention over the whole
// video, cross-attention to the text and feed-forward, with rotary positions on three axes.
#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "models/families/open_sora_plan/loaders.h"
#include "models/families/open_sora_plan/transformer_weights.h"
#include "models/transformer/attend.h"
#include "models/transformer/layered_transformer.h"
#include "models/transformer/patches.h"

namespace sparsereel::models {
namespace {

constexpr double kHeadEps = 1e-6;  // epsilon of the last norm, for which the reference ignores norm_eps

/// The texts of a batch for cross-attention, cut to the number of tokens L' of the longest text. Padding has a bias of
/// -inf.
struct SeenText {
  at::Tensor rows;  // [B, L', C]
  at::Tensor bias;  // fp32 [B, L']; undefined if there is no padding
};

SeenText without_padding(const Conditioning& given) {
  const auto [shortest, longest] = given.shortest_and_longest_text();
  SeenText seen = {.rows = given.text.narrow(1, 0, longest), .bias = {}};
  if (shortest == longest) return seen;
  const at::Tensor lengths = at::tensor(given.text_lengths, at::kLong);
  const at::Tensor padding = at::arange(longest, at::kLong).unsqueeze(0) >= lengths.unsqueeze(1);
  seen.bias = at::zeros(padding.sizes(), at::kFloat)
                  .masked_fill(padding, -std::numeric_limits<float>::infinity())
                  .to(given.text.device());
  return seen;
}

class OpenSoraPlan final : public LayeredTransformer<OpenSoraPlanConfig, OpenSoraPlanEnds, OpenSoraPlanBlock> {
 public:
  explicit OpenSoraPlan(const Component& component)
      : LayeredTransformer(component, parse_open_sora_plan_config, "transformer_blocks.") {}

  hilbert::Grid grid_of(const TransformerInput& input) const override;
  TokenTables tables(const hilbert::Grid& grid) const override;
  Tokens embed(const TransformerInput& input, const TokenPlan& plan) const override;
  void block(size_t layer, Tokens& tokens, Attend& attend) const override;
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override;

 private:
  PatchSize patch() const { return {.frames = 1, .height = config_.patch_size, .width = config_.patch_size}; }
  Activation self_attention(const OpenSoraPlanBlock& block, Activation x, Attend& attend) const;
  at::Tensor cross_attention(const OpenSoraPlanBlock& block, const at::Tensor& x, const Tokens& tokens,
                             Attend& attend) const;
};

hilbert::Grid OpenSoraPlan::grid_of(const TransformerInput& input) const {
  const hilbert::Grid grid = grid_of_patches(input.latents, config_.in_channels, patch(), config_file_);
  check_conditions(input, config_.caption_channels, "caption_channels", config_file_);
  check_text_alone(input, config_file_);
  return grid;
}

// Rounds angles, cosines and sines to the run's dtype, as they were in training.
TokenTables OpenSoraPlan::tables(const hilbert::Grid& grid) const {
  const int64_t axis = config_.attention_head_dim / 3;
  const AxisPositions whole = plain_axis_positions(grid, at::kFloat);
  const AxisPositions places = {.t = whole.t / config_.interpolation_scale_t,
                                .h = whole.h / config_.interpolation_scale_h,
                                .w = whole.w / config_.interpolation_scale_w};
  return {.video_positions = {},
          .text_positions = {},
          .rotary = rotary_positions_3d({.t = axis, .h = axis, .w = axis}, places, ends_.patch.bias.scalar_type())};
}

Tokens OpenSoraPlan::embed(const TransformerInput& input, const TokenPlan& plan) const {
  const auto dtype = input.latents.scalar_type();
  const at::Tensor sinusoids = timestep_sinusoids(input.timesteps, OpenSoraPlanConfig::kTimeChannels,
                                                  /*flip_sin_to_cos=*/true, /*freq_shift=*/0);
  const at::Tensor time = embed_timesteps(sinusoids.to(dtype), ends_.time_embedding);
  const at::Tensor patches = patchify(input.latents.transpose(1, 2), patch(), plan);
  const SeenText text = without_padding(input.conditioning);
  return {
      .hidden = Residual(linear(patches, ends_.patch), patches.size(1)),
      .text_tokens = 0,
      .time = time,
      .modulation = linear_few_rows(at::silu(time), {&ends_.time_projection})[0].to(at::kFloat).unflatten(1, {6, -1}),
      .context = feed_forward_gelu_tanh(text.rows, ends_.text_in, ends_.text_out),
      .context_bias = text.bias};
}

Activation OpenSoraPlan::self_attention(const OpenSoraPlanBlock& block, Activation x, Attend& attend) const {
  return attend({.x = std::move(x), .qkv = &block.qkv}, heads(), {}, block.to_out);
}

at::Tensor OpenSoraPlan::cross_attention(const OpenSoraPlanBlock& block, const at::Tensor& x, const Tokens& tokens,
                                         Attend& attend) const {
  const at::Tensor q = split_heads(linear(x, block.cross_q)), kv = split_heads(linear(tokens.context, block.cross_kv));
  return attend.cross(q.select(2, 0), kv.select(2, 0), kv.select(2, 1), {}, tokens.context_bias, block.cross_out);
}

void OpenSoraPlan::block(size_t layer, Tokens& tokens, Attend& attend) const {
  const OpenSoraPlanBlock& block = blocks_[layer];
  const at::Tensor table = block.modulation + tokens.modulation;
  const JointModulation first = modulation_rows(table, 0, 3), second = modulation_rows(table, 3, 3);
  Activation x = tokens.hidden.norm_modulate({}, config_.norm_eps, first, block.qkv);
  tokens.hidden.add(linear(self_attention(block, std::move(x), attend), block.to_out), first);
  // No norm precedes cross-attention.
  tokens.hidden.add(cross_attention(block, tokens.hidden.value(), tokens, attend));
  tokens.hidden.add_feed_forward({}, config_.norm_eps, second, block.feed_forward_in, block.feed_forward_out);
}

at::Tensor OpenSoraPlan::head(Tokens& tokens, const TokenPlan& plan) const {
  const JointModulation modulation = modulation_rows(ends_.modulation + tokens.time.unsqueeze(1), 0, 2);
  const at::Tensor patches = linear(tokens.hidden.norm_modulate({}, kHeadEps, modulation), ends_.out);
  return unpatchify_channels_last(patches, config_.out_channels, config_.in_channels, patch(), plan);
}

}  // namespace

std::unique_ptr<LoadedTransformer> load_open_sora_plan_transformer(const Component& component, at::Device device,
                                                                   WeightFormat format, const Streaming& streaming) {
  return loaded_transformer(std::make_unique<OpenSoraPlan>(component), component, device, format, streaming);
}

}  // namespace sparsereel::models
