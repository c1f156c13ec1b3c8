// CogVideoX 2b, 5b and 1.5 (Yang et al., arXiv 2408.06072): patches in, blocks over [video | text] tokens, patches out.
#include "models/families/cogvideox/loaders.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/families/cogvideox/tokens.h"
#include "models/families/cogvideox/transformer_weights.h"
#include "models/transformer/attend.h"
#include "models/transformer/layered_transformer.h"
#include "models/transformer/patches.h"

namespace sparsereel::models {
namespace {

// The reference fixes the epsilon of the norms of q and k; norm_eps applies to all other norms.
constexpr double kQkNormEps = 1e-6;
// The constant that is embedded for ofs_embed_dim. Training and the reference's pipeline use it in every forward pass
// of the image-to-video model of 1.5.
constexpr double kOfs = 2;

// Splits the result of an adaptive norm's linear layer into vectors [B, C]: shift, scale and gate of the video, then of
// the text.
JointModulation joint_modulation(const at::Tensor& projected) {
  const std::vector<at::Tensor> v = projected.chunk(6, 1);
  return {.video = {v[0], v[1], v[2]}, .text = {v[3], v[4], v[5]}};
}

class CogVideoX final : public LayeredTransformer<CogVideoXConfig, CogVideoXEnds, CogVideoXBlock> {
 public:
  explicit CogVideoX(const Component& component)
      : LayeredTransformer(component, parse_cogvideox_config, "transformer_blocks.") {}

  hilbert::Grid grid_of(const TransformerInput& input) const override;
  TokenTables tables(const hilbert::Grid& grid) const override {
    return cogvideox_tables(config_, config_file_, ends_.learned_positions, grid);
  }
  Tokens embed(const TransformerInput& input, const TokenPlan& plan) const override;
  void block(size_t layer, Tokens& tokens, Attend& attend) const override;
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override;

 private:
  PatchSize patch_size() const {
    return {.frames = config_.patch_size_t.value_or(1), .height = config_.patch_size, .width = config_.patch_size};
  }
  at::Tensor embed_time(const TransformerInput& input) const;
  void add_text_positions(at::Tensor& text, const at::Tensor& positions) const;
  Activation self_attention(const CogVideoXBlock& block, Activation x, Attend& attend) const;
};

hilbert::Grid CogVideoX::grid_of(const TransformerInput& input) const {
  const hilbert::Grid grid =
      grid_of_patches(input.latents, config_.in_channels, patch_size(), config_file_, LatentLayout::frames_first);
  check_conditions(input, config_.text_embed_dim, "text_embed_dim", config_file_);
  check_text_alone(input, config_file_);
  return grid;
}

void CogVideoX::add_text_positions(at::Tensor& text, const at::Tensor& positions) const {
  if (text.size(1) != positions.size(0)) {
    throw bad_input("the text has " + std::to_string(text.size(1)) + " tokens, but this model's positions are for " +
                        std::to_string(positions.size(0)) + " (max_text_seq_length in " + config_file_ + ")",
                    "leave out max_sequence_length, or set it to " + std::to_string(positions.size(0)));
  }
  text.add_(positions);
}

// Embeds the timesteps, and applies the SiLU that precedes the linear layers of the blocks' modulation.
at::Tensor CogVideoX::embed_time(const TransformerInput& input) const {
  const auto embed = [&](const at::Tensor& times, int64_t channels, const TimestepEmbedding& weights) {
    const at::Tensor sinusoids = timestep_sinusoids(times, channels, config_.flip_sin_to_cos, config_.freq_shift);
    return embed_timesteps(sinusoids.to(input.latents.scalar_type()), weights);
  };
  at::Tensor time = embed(input.timesteps, config_.width(), ends_.time_embedding);
  if (config_.ofs_embed_dim)
    time = time + embed(at::full({1}, kOfs, input.timesteps.options()), *config_.ofs_embed_dim, ends_.ofs_embedding);
  return at::silu(time);
}

Tokens CogVideoX::embed(const TransformerInput& input, const TokenPlan& plan) const {
  const at::Tensor patches = patchify(input.latents, patch_size(), plan);
  const int64_t video_tokens = patches.size(1), text_tokens = input.conditioning.text.size(1);
  const at::Tensor hidden =
      at::empty({patches.size(0), video_tokens + text_tokens, config_.width()}, input.latents.options());
  at::Tensor video = hidden.narrow(1, 0, video_tokens), text = hidden.narrow(1, video_tokens, text_tokens);
  const at::Tensor projected = linear(patches, ends_.patch);
  plan.video_positions.defined() ? at::add_out(video, projected, plan.video_positions) : video.copy_(projected);
  text.copy_(linear(input.conditioning.text, ends_.text));
  if (plan.text_positions.defined()) add_text_positions(text, plan.text_positions);
  return {.hidden = Residual(hidden, video_tokens), .text_tokens = text_tokens, .time = embed_time(input)};
}

// Returns the concatenated outputs of the heads, [B, N, C], for x [B, N, C].
Activation CogVideoX::self_attention(const CogVideoXBlock& block, Activation x, Attend& attend) const {
  attention::Prologue prologue;
  prologue.norm = attention::Prologue::Norm::layer;
  prologue.eps = kQkNormEps;
  prologue.q_weight = block.norm_q.weight;
  prologue.q_bias = block.norm_q.bias;
  prologue.k_weight = block.norm_k.weight;
  prologue.k_bias = block.norm_k.bias;
  return attend({.x = std::move(x), .qkv = &block.qkv}, heads(), std::move(prologue), block.to_out);
}

void CogVideoX::block(size_t layer, Tokens& tokens, Attend& attend) const {
  const CogVideoXBlock& block = blocks_[layer];
  const std::vector<at::Tensor> projected =
      linear_few_rows(tokens.time, {&block.norm1.modulation, &block.norm2.modulation});
  const JointModulation first = joint_modulation(projected[0]), second = joint_modulation(projected[1]);
  Activation x = tokens.hidden.norm_modulate(block.norm1.norm, config_.norm_eps, first, block.qkv);
  tokens.hidden.add(linear(self_attention(block, std::move(x), attend), block.to_out), first);
  tokens.hidden.add_feed_forward(block.norm2.norm, config_.norm_eps, second, block.feed_forward_in,
                                 block.feed_forward_out);
}

at::Tensor CogVideoX::head(Tokens& tokens, const TokenPlan& plan) const {
  const std::vector<at::Tensor> v = linear_few_rows(tokens.time, {&ends_.norm_out_modulation})[0].chunk(2, 1);
  const JointModulation modulation = {.video = {.shift = v[0], .scale = v[1], .gate = {}}, .text = {}};
  const at::Tensor video = tokens.hidden.video();
  const at::Tensor x = layer_norm(video, ends_.norm_final, config_.norm_eps);
  const at::Tensor patches =
      linear(layer_norm_modulate(x, ends_.norm_out, config_.norm_eps, x.size(1), modulation), ends_.out);
  return unpatchify(patches, patch_size(), plan);
}

}  // namespace

std::unique_ptr<LoadedTransformer> load_cogvideox_transformer(const Component& component, at::Device device,
                                                              WeightFormat format, const Streaming& streaming) {
  return loaded_transformer(std::make_unique<CogVideoX>(component), component, device, format, streaming);
}

}  // namespace sparsereel::models
