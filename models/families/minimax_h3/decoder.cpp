// The layers of MiniMax-H3's VAE decoder.
#include "models/families/minimax_h3/decoder.h"

#include <ATen/ATen.h>

#include <numbers>

#include "attention/attention.h"
#include "models/families/minimax_h3/rotary_order.h"

namespace sparsereel::models {
namespace {

/// Adds scale * update to x [B, N, C] in place. `scale` [C] is the same for all tokens.
void add_scaled_(at::Tensor& x, const at::Tensor& update, const at::Tensor& scale) {
  const at::Tensor gate = scale.expand({x.size(0), -1});
  add_gated_(x, update.to(at::kFloat), x.size(1), {.video = {.shift = {}, .scale = {}, .gate = gate}, .text = {}});
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType dtype) {
  return rms_norm_modulate(x, eps, weight.expand({x.size(0), -1})).to(dtype);
}

}  // namespace

void MiniMaxH3DecoderBlock::weights(const Visit& visit, const std::string& name, const MiniMaxH3VaeConfig& config) {
  const int64_t channels = config.decoder_width(), inner = config.decoder_ffn_mult * channels;
  const RotatedHeads heads = {.count = config.decoder_num_attention_heads,
                              .dim = config.decoder_attention_head_dim,
                              .rotated = config.rotated_channels()};
  const std::string attention = name + ".attn.";
  const auto vector = [&](at::Tensor& tensor, const char* suffix) {
    visit(tensor, parameter(name + suffix, {channels}, /*fp32=*/true));
  };
  vector(norm_attention, ".norm1.weight");
  vector(scale_attention, ".scale1");
  vector(norm_feed_forward, ".norm2.weight");
  vector(scale_feed_forward, ".scale2");
  if (config.has_fused_heads)
    qkv.weights(in_row_order(visit, heads.row_order_by_head()), attention + "to_qkv", 3 * channels, channels);
  else
    qkv.packed_weights(in_row_order(visit, heads.row_order()),
                       {attention + "to_q", attention + "to_k", attention + "to_v"}, channels, channels);
  to_out.weights(visit, attention + "to_out.0", channels, channels);
  feed_forward_in.weights(visit, name + ".ff.net.0.proj", 2 * inner, channels);
  feed_forward_out.weights(visit, name + ".ff.net.2", channels, inner);
}

void MiniMaxH3Decoder::weights(const Visit& visit, const MiniMaxH3VaeConfig& config) {
  const int64_t latents = config.latent_channels, channels = config.decoder_width();
  const int64_t patch = 3 * config.frames_a_latent() * config.pixels_a_latent() * config.pixels_a_latent();
  const Visit wide = in_fp32(visit);
  latents_in_.weights(in_any_shape(wide), "post_quant_conv", latents, latents, /*has_bias=*/true,
                      {latents, latents, 1, 1, 1});
  tokens_in_.weights(wide, "decoder.proj_in", channels, latents);
  if (config.decoder_num_register_tokens > 0)
    wide(register_tokens_,
         parameter("decoder.register_tokens", {1, config.decoder_num_register_tokens, channels}, /*fp32=*/true));
  blocks_.resize(static_cast<size_t>(config.decoder_num_layers));
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].weights(visit, "decoder.transformer_blocks." + std::to_string(i), config);
  norm_out_.weights(visit, "decoder.norm_out", channels, /*fp32=*/true);
  pixels_out_.weights(visit, "decoder.proj_out", patch, channels);
}

RotaryTable minimax_h3_tile_positions(const MiniMaxH3VaeConfig& config, at::IntArrayRef sizes, int64_t others) {
  const int64_t rotated = config.rotated_channels(), count = rotated / 6;
  const at::Tensor exponent = at::arange(count, at::kFloat) * (6.0 / static_cast<double>(rotated));
  const at::Tensor frequency = at::pow(config.decoder_rope_theta, exponent).reciprocal() * (2 * std::numbers::pi);
  std::vector<at::Tensor> axes;
  for (const int64_t size : sizes)
    axes.push_back((at::arange(size, at::kFloat) + 0.5) / static_cast<double>(size) * 2 - 1);
  const at::Tensor positions = at::stack(at::meshgrid(axes, "ij"), -1).view({-1, 3, 1});
  const at::Tensor angles = at::constant_pad_nd((positions * frequency).flatten(1), {0, 0, 0, others});
  const at::Tensor pairs = angles.repeat_interleave(2, 1);
  const int64_t rest = config.decoder_attention_head_dim - rotated;  // channels that are not rotated
  return {.cos = at::constant_pad_nd(pairs.cos(), {0, rest}, 1), .sin = at::constant_pad_nd(pairs.sin(), {0, rest}, 0)};
}

/// Returns the tokens, fp32 [tiles, F h w + R + 1, C]: those of the latents, R register tokens, and a token of zeros.
at::Tensor MiniMaxH3Decoder::embed(const at::Tensor& latents) const {
  const at::Tensor rows = latents.permute({0, 2, 3, 4, 1}).flatten(1, 3);
  const at::Tensor tokens = linear(linear(rows, latents_in_), tokens_in_);
  std::vector<at::Tensor> parts = {tokens};
  if (register_tokens_.defined()) parts.push_back(register_tokens_.expand({tokens.size(0), -1, -1}));
  parts.push_back(at::zeros({tokens.size(0), 1, tokens.size(2)}, tokens.options()));
  return at::cat(parts, 1);
}

at::Tensor MiniMaxH3Decoder::attended(const MiniMaxH3DecoderBlock& block, const at::Tensor& x,
                                      const RotaryTable& rotary, const MiniMaxH3VaeConfig& config) const {
  const at::Tensor qkv =
      linear(x, block.qkv).unflatten(2, {3, config.decoder_num_attention_heads, config.decoder_attention_head_dim});
  attention::Context context;
  context.prologue.norm = attention::Prologue::Norm::rms;
  context.prologue.eps = config.decoder_norm_eps;
  context.prologue.rotary_cos = rotary.cos;
  context.prologue.rotary_sin = rotary.sin;
  attention::Workspace workspace;
  const at::Tensor out =
      attention::attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, workspace).out;
  return linear(out.flatten(2), block.to_out);
}

at::Tensor MiniMaxH3Decoder::decode(const at::Tensor& latents, const MiniMaxH3VaeConfig& config) const {
  const int64_t tiles = latents.size(0), frames = latents.size(2), height = latents.size(3), width = latents.size(4);
  const int64_t t = config.frames_a_latent(), s = config.pixels_a_latent(), patches = frames * height * width;
  at::Tensor x = embed(latents);
  const RotaryTable positions = minimax_h3_tile_positions(config, {frames, height, width}, x.size(1) - patches);
  const RotaryTable rotary = {.cos = positions.cos.to(x.device()), .sin = positions.sin.to(x.device())};
  const at::ScalarType dtype = pixels_out_.weight.scalar_type();
  const double eps = config.decoder_norm_eps;
  for (const MiniMaxH3DecoderBlock& block : blocks_) {
    add_scaled_(x, attended(block, normed(x, block.norm_attention, eps, dtype), rotary, config), block.scale_attention);
    add_scaled_(x,
                feed_forward_swiglu(normed(x, block.norm_feed_forward, eps, dtype), block.feed_forward_in,
                                    block.feed_forward_out),
                block.scale_feed_forward);
  }
  const at::Tensor last = layer_norm(x.narrow(1, 0, patches), norm_out_, eps).to(dtype);
  return linear(last, pixels_out_)
      .to(at::kFloat)
      .view({tiles, frames, height, width, 3, t, s, s})
      .permute({0, 4, 1, 5, 2, 6, 3, 7})
      .reshape({tiles, 3, frames * t, height * s, width * s});
}

}  // namespace sparsereel::models
