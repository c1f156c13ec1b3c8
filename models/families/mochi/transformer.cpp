// Mochi 1 (Genmo, 2024). Its blocks have two streams, the video and a narrower text, which share attention and are
// otherwise separate. Norms are RMS norms without weights; their results are multiplied by scales that depend on
// timestep and text. Each update of a stream is also normalized, and multiplied by a gate.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/families/mochi/loaders.h"
#include "models/families/mochi/transformer_weights.h"
#include "models/transformer/attend.h"
#include "models/transformer/layered_transformer.h"
#include "models/transformer/patches.h"

namespace sparsereel::models {
namespace {

// fixed by the reference
constexpr double kMochiEps = 1e-6, kMochiQkEps = 1e-5;
constexpr double kPositionsArea = 192.0 * 192;  // positions are scaled so that a frame's patches always cover this area

/// The vectors [B, S] by which a stream's norms (scale) and updates (gate) are multiplied.
struct StreamModulation {
  at::Tensor attention_scale, attention_gate, feed_forward_scale, feed_forward_gate;
};

StreamModulation modulation_of(const at::Tensor& projected, bool ends) {
  if (ends)
    return {.attention_scale = projected + 1, .attention_gate = {}, .feed_forward_scale = {}, .feed_forward_gate = {}};
  const std::vector<at::Tensor> v = projected.chunk(4, 1);
  return {.attention_scale = v[0] + 1,
          .attention_gate = at::tanh(v[1]),
          .feed_forward_scale = v[2] + 1,
          .feed_forward_gate = at::tanh(v[3])};
}

void add_attention(Residual& tokens, const MochiStream& stream, const StreamModulation& modulation,
                   const at::Tensor& heads) {
  tokens.add_normed(linear(heads, stream.to_out), kMochiEps, modulation.attention_gate);
}

void add_feed_forward(Residual& tokens, const MochiStream& stream, const StreamModulation& modulation) {
  const Activation x = tokens.rms_norm_modulate(kMochiEps, modulation.feed_forward_scale, stream.feed_forward_in);
  tokens.add_normed(feed_forward_swiglu(x, stream.feed_forward_in, stream.feed_forward_out), kMochiEps,
                    modulation.feed_forward_gate);
}

/// Divides [-length / 2, length / 2] into `count` equal parts and returns their centers.
at::Tensor centers(int64_t count, double length) {
  const at::Tensor edges = at::linspace(-length / 2, length / 2, count + 1, at::kFloat);
  return (edges.narrow(0, 0, count) + edges.narrow(0, 1, count)) / 2;
}

/// Returns the tokens' positions, fp32 [frames x height x width, 4]: frame, row, column, and a column that is not read.
at::Tensor positions_of(const hilbert::Grid& grid) {
  const double rows = static_cast<double>(grid.height), columns = static_cast<double>(grid.width);
  const double side = std::sqrt(kPositionsArea / (rows * columns));  // side of a patch
  const std::vector<at::Tensor> axes = at::meshgrid(
      {at::arange(grid.frames, at::kFloat), centers(grid.height, rows * side), centers(grid.width, columns * side)},
      "ij");
  return at::constant_pad_nd(at::stack(axes, -1).view({-1, 3}), {0, 1});
}

/// Returns bool [B, L]: true for tokens of a text, false for padding.
at::Tensor mask_of(const Conditioning& conditioning) {
  const at::Tensor& text = conditioning.text;
  const at::Tensor places = at::arange(text.size(1), text.options().dtype(at::kLong)).unsqueeze(0);
  if (conditioning.text_lengths.empty()) return places.expand({text.size(0), -1}) >= 0;
  return places < at::tensor(conditioning.text_lengths, at::kLong).to(text.device()).unsqueeze(1);
}

class Mochi final : public LayeredTransformer<MochiConfig, MochiEnds, MochiBlock> {
 public:
  explicit Mochi(const Component& component)
      : LayeredTransformer(component, parse_mochi_config, "transformer_blocks.") {
    blocks_.back().ends_text = true;
  }

  hilbert::Grid grid_of(const TransformerInput& input) const override;
  TokenTables tables(const hilbert::Grid& grid) const override;
  Tokens embed(const TransformerInput& input, const TokenPlan& plan) const override;
  void block(size_t layer, Tokens& tokens, Attend& attend) const override;
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override;

 private:
  PatchSize patch() const { return {.frames = 1, .height = config_.patch_size, .width = config_.patch_size}; }
  at::Tensor pool(const at::Tensor& text, const at::Tensor& mask) const;
  at::Tensor attended(const MochiBlock& block, Activation video, std::optional<Activation> text, Attend& attend) const;
};

hilbert::Grid Mochi::grid_of(const TransformerInput& input) const {
  const hilbert::Grid grid = grid_of_patches(input.latents, config_.in_channels, patch(), config_file_);
  check_conditions(input, config_.text_embed_dim, "text_embed_dim", config_file_);
  check_text_alone(input, config_file_);
  return grid;
}

TokenTables Mochi::tables(const hilbert::Grid& grid) const {
  return {.video_positions = {},
          .text_positions = {},
          .rotary = {},
          .rotary_by_head = {.positions = positions_of(grid),
                             .frequencies = ends_.pos_frequencies.to(at::kFloat).transpose(0, 1).contiguous()}};
}

// Pools text [B, L, T] to [B, C]. If a text has no tokens, the query and its only key and value come from a mean of
// zero.
at::Tensor Mochi::pool(const at::Tensor& text, const at::Tensor& mask) const {
  const MochiPooler& pooler = ends_.pooler;
  const at::Tensor kept = mask.to(text.scalar_type()).unsqueeze(2);
  const at::Tensor share = kept / kept.sum(1, /*keepdim=*/true).clamp_min(1);
  const at::Tensor mean = (text * share).sum(1, /*keepdim=*/true);
  const auto heads = [](const at::Tensor& x) {
    return x.unflatten(2, {MochiConfig::kPoolerHeads, -1}).transpose(1, 2);
  };
  const std::vector<at::Tensor> kv = linear(at::cat({mean, text}, 1), pooler.to_kv).chunk(2, 2);
  const at::Tensor seen = at::constant_pad_nd(mask, {1, 0}, 1).unsqueeze(1).unsqueeze(2);  // [B, 1, 1, 1 + L]
  const at::Tensor pooled =
      at::scaled_dot_product_attention(heads(linear(mean, pooler.to_q)), heads(kv[0]), heads(kv[1]), seen);
  return linear(pooled.transpose(1, 2).flatten(2).squeeze(1), pooler.to_out);
}

Tokens Mochi::embed(const TransformerInput& input, const TokenPlan& plan) const {
  const auto dtype = input.latents.scalar_type();
  const Conditioning& given = input.conditioning;
  // The reference's pipeline rounds timesteps to the run's dtype.
  const at::Tensor sinusoids = timestep_sinusoids(input.timesteps.to(dtype), config_.time_embed_dim,
                                                  /*flip_sin_to_cos=*/true, /*freq_shift=*/0);
  const at::Tensor time = embed_timesteps(sinusoids.to(dtype), ends_.time_embedding);
  const at::Tensor patches = patchify(input.latents.transpose(1, 2), patch(), plan);
  Tokens tokens = {.hidden = Residual(linear(patches, ends_.patch), patches.size(1)),
                   .text_tokens = 0,
                   .time = at::silu(time + pool(given.text, mask_of(given)))};
  // Padding that all texts of the batch have is dropped, because no token attends to padding.
  const auto [shortest, longest] = given.shortest_and_longest_text();
  tokens.text_tokens = longest;
  if (shortest < longest)
    tokens.key_lengths = at::tensor(given.text_lengths, at::kLong).add(patches.size(1)).to(patches.device());
  if (tokens.text_tokens > 0) {
    const at::Tensor text = linear(given.text.narrow(1, 0, tokens.text_tokens), ends_.text);
    tokens.text.emplace(text, tokens.text_tokens);
  }
  return tokens;
}

// Returns the concatenated outputs of the heads, [B, N + L, C], for video [B, N, C] and text [B, L, W]. Without a text,
// L is 0.
at::Tensor Mochi::attended(const MochiBlock& block, Activation video, std::optional<Activation> text,
                           Attend& attend) const {
  attention::Prologue prologue;
  prologue.norm = attention::Prologue::Norm::rms;
  prologue.eps = kMochiQkEps;
  prologue.q_weight = block.video.norm_q;
  prologue.k_weight = block.video.norm_k;
  prologue.text_q_weight = block.text.norm_q;
  prologue.text_k_weight = block.text.norm_k;
  return attend({.x = std::move(video), .qkv = &block.video.qkv}, heads(), std::move(prologue), {},
                {.x = std::move(text), .qkv = &block.text.qkv})
      .values;
}

void Mochi::block(size_t layer, Tokens& tokens, Attend& attend) const {
  const MochiBlock& block = blocks_[layer];
  const std::vector<at::Tensor> projected =
      linear_few_rows(tokens.time, {&block.video.modulation, &block.text.modulation});
  const StreamModulation of_video = modulation_of(projected[0], /*ends=*/false),
                         of_text = modulation_of(projected[1], block.ends_text);
  Activation video = tokens.hidden.rms_norm_modulate(kMochiEps, of_video.attention_scale, block.video.qkv);
  std::optional<Activation> text;
  if (tokens.text) text = tokens.text->rms_norm_modulate(kMochiEps, of_text.attention_scale, block.text.qkv);
  const int64_t video_tokens = video.sizes()[1];
  // Tensors are freed as soon as they have been read, because the next layer needs their memory.
  at::Tensor heads = attended(block, std::move(video), std::move(text), attend);
  const bool text_goes_on = tokens.text && !block.ends_text;
  add_attention(tokens.hidden, block.video, of_video, heads.narrow(1, 0, video_tokens));
  if (text_goes_on) add_attention(*tokens.text, block.text, of_text, heads.narrow(1, video_tokens, tokens.text_tokens));
  heads.reset();
  add_feed_forward(tokens.hidden, block.video, of_video);
  if (text_goes_on) add_feed_forward(*tokens.text, block.text, of_text);
}

at::Tensor Mochi::head(Tokens& tokens, const TokenPlan& plan) const {
  const std::vector<at::Tensor> v = linear_few_rows(tokens.time, {&ends_.norm_out_modulation})[0].chunk(2, 1);
  const JointModulation modulation = {.video = {.shift = v[1], .scale = v[0], .gate = {}}, .text = {}};
  const at::Tensor patches = linear(tokens.hidden.norm_modulate({}, kMochiEps, modulation), ends_.out);
  return unpatchify_channels_last(patches, config_.out_channels, config_.out_channels, patch(), plan);
}

}  // namespace

std::unique_ptr<LoadedTransformer> load_mochi_transformer(const Component& component, at::Device device,
                                                          WeightFormat format, const Streaming& streaming) {
  return loaded_transformer(std::make_unique<Mochi>(component), component, device, format, streaming);
}

}  // namespace sparsereel::models
