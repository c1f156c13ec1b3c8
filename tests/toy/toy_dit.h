// The toy's transformer: latents [B, C, F, H, W]; text is no token but attended to; each layer attends, looks at the
// text, then adds a product that goes through a width of its own.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/dit/dit.h"
#include "models/dit/patches.h"
#include "models/layers/linear.h"
#include "tests/toy/toy_config.h"

namespace sparsereel::test {

class ToyDit final : public models::Dit {
 public:
  explicit ToyDit(const ToyConfig& config = {}) : config_(config), blocks_(static_cast<size_t>(config.layers)) {}

  size_t layers() const override { return blocks_.size(); }
  void weights(const models::Visit& visit) override {
    embed_.weights(visit, "embed", config_.width(), patch_channels());
    head_.weights(visit, "head", patch_channels(), config_.width());
  }
  void weights(size_t layer, const models::Visit& visit) override {
    const std::string name = "layer." + std::to_string(layer);
    const auto inner = static_cast<int64_t>(8 * (layer + 1)), width = config_.width();
    Block& block = blocks_[layer];
    block.key_value.packed_weights(visit, {name + ".k", name + ".v"}, width, config_.text_dim, false);
    block.inner.weights(visit, name + ".in", inner, width, /*has_bias=*/layer != 1);
    block.outer.weights(visit, name + ".out", width, inner);
  }
  hilbert::Grid grid_of(const models::DitInput& input) const override {
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
  models::Tokens embed(const models::DitInput& input, const models::TokenPlan& plan) const override {
    const at::Tensor patches = models::patchify(input.latents.transpose(1, 2), patch(), plan);
    const at::Tensor video = models::linear(patches, embed_) + plan.video_positions;
    return {.hidden = models::Residual(video, video.size(1)),
            .text_tokens = 0,
            .time = at::sin(input.timesteps).view({-1, 1}),
            .context = input.conditioning.text};
  }
  void block(size_t layer, models::Tokens& tokens, models::Attend& attend) const override {
    const Block& block = blocks_[layer];
    const at::Tensor ones = at::ones({tokens.time.size(0), config_.width()}, embed_.weight.options());
    const models::JointModulation plain = {.video = {ones * 0, ones * 0, ones}, .text = {}};
    const at::Tensor x = tokens.hidden.norm_modulate({}, 1e-5, plain), heads = x.unflatten(2, {config_.heads, -1});
    tokens.hidden.add(attend(heads, heads, heads, {}).values, plain);
    const models::Linear same = {.weight = at::eye(config_.width(), x.options())};
    const at::Tensor kv = models::linear(tokens.context, block.key_value).unflatten(2, {2, config_.heads, -1});
    tokens.hidden.add(attend.cross(heads, kv.select(2, 0), kv.select(2, 1), {}, {}, same), plain);
    const at::Tensor gated = x * tokens.time.unsqueeze(2).to(x.scalar_type());
    tokens.hidden.add(models::linear(models::linear(gated, block.inner), block.outer), plain);
  }
  at::Tensor head(models::Tokens& tokens, const models::TokenPlan& plan) const override {
    return models::unpatchify(models::linear(tokens.hidden.value(), head_), patch(), plan).transpose(1, 2);
  }

 private:
  struct Block {
    models::Linear key_value, inner, outer;
  };

  models::PatchSize patch() const {
    return {.frames = config_.patch[0], .height = config_.patch[1], .width = config_.patch[2]};
  }
  int64_t patch_channels() const { return config_.channels * config_.patch[0] * config_.patch[1] * config_.patch[2]; }

  ToyConfig config_;
  models::Linear embed_, head_;
  std::vector<Block> blocks_;
};

}  // namespace sparsereel::test
