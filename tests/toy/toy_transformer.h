// The toy's transformer for latents [B, C, F, H, W]. Text and video tokens have different widths and attend to each
// other. Each layer has attention and a feed-forward network whose inner width differs by layer. Tokens of known
// latents (an image that the video begins with) get timestep 0.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/layers/linear.h"
#include "models/transformer/attend.h"
#include "models/transformer/patches.h"
#include "models/transformer/transformer.h"
#include "tests/toy/toy_config.h"

namespace sparsereel::test {

class ToyTransformer final : public models::Transformer {
 public:
  explicit ToyTransformer(const ToyConfig& config = {})
      : config_(config), blocks_(static_cast<size_t>(config.layers)) {}

  size_t layers() const override { return blocks_.size(); }
  void weights(const models::Visit& visit) override {
    embed_.weights(visit, "embed", config_.width(), patch_channels());
    text_.weights(visit, "text", config_.text_width, config_.text_dim);
    head_.weights(visit, "head", patch_channels(), config_.width());
  }
  void weights(size_t layer, const models::Visit& visit) override {
    const std::string name = "layer." + std::to_string(layer);
    const auto inner = static_cast<int64_t>(8 * (layer + 1)), width = config_.width();
    Block& block = blocks_[layer];
    block.text_qkv.packed_weights(visit, {name + ".q", name + ".k", name + ".v"}, width, config_.text_width, false);
    block.text_out.weights(visit, name + ".text", config_.text_width, width);
    block.inner.weights(visit, name + ".in", inner, width, /*has_bias=*/layer != 1);
    block.outer.weights(visit, name + ".out", width, inner);
  }
  hilbert::Grid grid_of(const models::TransformerInput& input) const override {
    const auto& [t, h, w] = config_.patch;
    if (input.latents.size(1) != config_.channels)
      throw bad_input("latents have another number of channels", "use " + std::to_string(config_.channels));
    models::check_conditions(input, config_.text_dim, "text_dim", "the toy's config.json");
    return {input.latents.size(2) / t, input.latents.size(3) / h, input.latents.size(4) / w};
  }
  models::TokenTables tables(const hilbert::Grid& grid) const override {
    return {.video_positions = models::sincos_positions_3d(config_.width(), grid, 1, 1),
            .text_positions = {},
            .rotary = {}};
  }
  models::Tokens embed(const models::TransformerInput& input, const models::TokenPlan& plan) const override {
    const at::Tensor patches = models::patchify(input.latents.transpose(1, 2), patch(), plan);
    const at::Tensor video = models::linear(patches, embed_) + plan.video_positions;
    const models::Conditioning& given = input.conditioning;
    models::Tokens tokens = {.hidden = models::Residual(video, video.size(1)),
                             .text = models::Residual(models::linear(given.text, text_), given.text.size(1)),
                             .text_tokens = given.text.size(1),
                             .time = at::sin(input.timesteps).view({-1, 1})};
    if (!given.text_lengths.empty())
      tokens.key_lengths = at::tensor(given.text_lengths, at::kLong).add(video.size(1)).to(video.device());
    if (given.mask.defined()) {  // two rows of tokens.time per batch entry: its timestep and timestep 0
      tokens.time = at::stack({tokens.time, at::zeros_like(tokens.time)}, 1).flatten(0, 1);
      const at::Tensor entries = at::arange(video.size(0), video.options().dtype(at::kLong)).unsqueeze(1);
      tokens.row_of_token = 2 * entries + models::known_tokens(given.mask.transpose(1, 2), patch(), plan);
    }
    return tokens;
  }
  void block(size_t layer, models::Tokens& tokens, models::Attend& attend) const override {
    const Block& block = blocks_[layer];
    const models::JointModulation timed = modulation(config_.width(), tokens.time, tokens.row_of_token);
    const models::JointModulation plain = modulation(config_.text_width, at::zeros_like(tokens.time), {});
    const at::Tensor video = tokens.hidden.norm_modulate({}, 1e-5, timed);
    const at::Tensor text = tokens.text->norm_modulate({}, 1e-5, plain);
    const models::Linear thrice = {.weight = at::eye(config_.width(), video.options()).repeat({3, 1})};
    const at::Tensor out = attend({.x = video, .qkv = &thrice}, {config_.heads, config_.head_dim}, {}, {},
                                  {.x = text, .qkv = &block.text_qkv})
                               .values;
    tokens.hidden.add(out.narrow(1, 0, video.size(1)), timed);
    tokens.text->add(models::linear(out.narrow(1, video.size(1), text.size(1)), block.text_out), plain);
    tokens.hidden.add(models::linear(models::linear(video, block.inner), block.outer), timed);
  }
  at::Tensor head(models::Tokens& tokens, const models::TokenPlan& plan) const override {
    return models::unpatchify(models::linear(tokens.hidden.value(), head_), patch(), plan).transpose(1, 2);
  }

 private:
  struct Block {
    models::Linear text_qkv, text_out, inner, outer;
  };

  /// Returns a modulation without shift, whose scale is `time` and whose gate is 1 + `time`, equal in all channels.
  static models::JointModulation modulation(int64_t width, const at::Tensor& time, const at::Tensor& row_of_token) {
    const at::Tensor scale = time.expand({-1, width});
    return {.video = {at::zeros_like(scale), scale, 1 + scale}, .text = {}, .row_of_token = row_of_token};
  }

  models::PatchSize patch() const {
    return {.frames = config_.patch[0], .height = config_.patch[1], .width = config_.patch[2]};
  }
  int64_t patch_channels() const { return config_.channels * config_.patch[0] * config_.patch[1] * config_.patch[2]; }

  ToyConfig config_;
  models::Linear embed_, text_, head_;
  std::vector<Block> blocks_;
};

}  // namespace sparsereel::test
