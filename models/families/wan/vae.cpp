// Wan's VAE: chunks of frames, tiles, patches, and what they cost.
#include "models/families/wan/loaders.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/families/wan/decoder.h"
#include "models/layers/host_memory.h"
#include "models/vae/tiling.h"

namespace sparsereel::models {
namespace {

// frames [1, colours p p, F, H, W] -> [1, colours, F, p H, p W]: channels hold (colour, column, row) of a patch.
at::Tensor unpatchify(const at::Tensor& frames, int64_t patch) {
  if (patch == 1) return frames;
  return frames.unflatten(1, {-1, patch, patch}).permute({0, 1, 4, 5, 3, 6, 2}).flatten(5, 6).flatten(3, 4);
}

class WanVae final : public Vae {
 public:
  WanVae(const WanVaeConfig& config, WanDecoder decoder) : config_(config), decoder_(std::move(decoder)) {
    tiles_.scale = config.pixels_a_latent() / config.patch_size;
    tiles_.height = tiles_.width = fixed_tile_axis(config.pixels_a_latent());
  }

  at::Tensor decode(const at::Tensor& latents, bool tiled, const DecodeProgress& progress) override;
  int64_t frames_of(int64_t latent_frames) const override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;

 private:
  at::Tensor denormalised(const at::Tensor& latents) const;
  at::Tensor decode_whole(const at::Tensor& latents, const std::function<void()>& frame_done) const;

  WanVaeConfig config_;
  WanDecoder decoder_;
  TilePlan tiles_;
};

int64_t WanVae::frames_of(int64_t latent_frames) const {
  return config_.frames_a_latent() * (latent_frames - 1) + 1;
}

at::Tensor WanVae::denormalised(const at::Tensor& latents) const {
  const auto column = [&](const std::vector<double>& values) {
    return at::tensor(values, at::kFloat).to(latents.device()).view({1, -1, 1, 1, 1});
  };
  return at::addcmul(column(config_.latents_mean), latents.to(at::kFloat), column(config_.latents_std))
      .to(latents.scalar_type());
}

// latents [1, C, F, H, W] -> [1, colours x patch, F', s H, s W], a latent frame at a time.
at::Tensor WanVae::decode_whole(const at::Tensor& latents, const std::function<void()>& frame_done) const {
  const at::Tensor frames = latents[0].permute({1, 2, 3, 0}).contiguous();
  const int64_t total = frames.size(0), scale = tiles_.scale;
  at::Tensor video = at::empty(
      {1, config_.out_channels, frames_of(total), scale * frames.size(1), scale * frames.size(2)}, latents.options());
  ConvHistory history{.starts_on_zeros = true, .frames = {}};
  int64_t written = 0;
  for (int64_t frame = 0; frame < total; ++frame) {
    const at::Tensor decoded = decode_frames(decoder_, frames.narrow(0, frame, 1), history);
    video[0].narrow(1, written, decoded.size(0)).copy_(decoded.permute({3, 0, 1, 2}));
    written += decoded.size(0);
    frame_done();
  }
  return video;
}

at::Tensor WanVae::decode(const at::Tensor& latents, bool tiled, const DecodeProgress& progress) {
  check_latents(latents, config_.z_dim);
  const at::Tensor frames =
      decode_by_plan(tiles_, denormalised(latents), tiled, latents.size(2), progress,
                     [this](const at::Tensor& tile, const auto& frame_done) { return decode_whole(tile, frame_done); });
  return unpatchify(frames, config_.patch_size).clamp_(-1, 1);
}

// Elements alive at the worst moment: in a residual block its input, that normalised behind the history, and a
// convolution's output; in an upsampler what it is given, that repeated, and the convolution's output. Besides them a
// level's input where a shortcut needs it, and throughout the history of all convolutions and the video.
uint64_t WanVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  const std::vector<WanVaeLevel> levels = levels_of(config_);
  int64_t frames = 1, pixels = latent_height * latent_width;  // frames of a chunk behind the first one
  const int64_t mid = levels.front().in;
  int64_t peak = 7 * pixels * mid;  // attention: its input, that normalised, q, k, v, their result, its projection
  int64_t history = kHistoryFrames * pixels * (config_.z_dim + 4 * mid);
  for (const WanVaeLevel& level : levels) {
    const int64_t held = config_.is_residual && level.enlarged > 0 ? frames * pixels * level.in : 0;
    const int64_t narrow = pixels * ((2 * frames + kHistoryFrames) * level.in + frames * level.out);
    const int64_t wide = pixels * (3 * frames + kHistoryFrames) * level.out;
    peak = std::max({peak, narrow, held + wide});
    history += kHistoryFrames * pixels * (level.in + (2 * config_.num_res_blocks + 1) * level.out);
    if (level.enlarged == 0) break;
    if (level.doubles_time) {
      history += kHistoryFrames * pixels * level.out;
      frames *= latent_frames > 1 ? 2 : 1;
      peak = std::max(peak, held + pixels * 5 * frames / 2 * level.out);
    }
    peak = std::max(peak, held + pixels * frames * (5 * level.out + 4 * level.enlarged));
    pixels *= 4;
  }
  history += kHistoryFrames * pixels * levels.back().out;
  const int64_t video = config_.out_channels * frames_of(latent_frames) * pixels;
  const int64_t elements = std::max(peak + history + video, config_.patch_size > 1 ? 2 * video : 0);
  return static_cast<uint64_t>(elements) * decoder_.conv_in.weight.element_size();
}

}  // namespace

std::unique_ptr<Vae> load_wan_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                  VaeParts /*parts: it has no encoder here*/) {
  if (device.is_cpu()) keep_freed_host_memory();
  const WanVaeConfig config = parse_wan_vae_config(component.config, component.config_file);
  WeightReader reader(component, device, dtype);
  for (const char* of_encoder : {"encoder.", "quant_conv."}) reader.ignore_prefix(of_encoder);
  const auto read = [&](at::Tensor& tensor, const Parameter& parameter) {
    tensor = reader.read(parameter);
    if (tensor.dim() == 5) tensor = laid_out(tensor, at::MemoryFormat::ChannelsLast3d);
    if (tensor.dim() == 4) tensor = laid_out(tensor, at::MemoryFormat::ChannelsLast);
  };
  WanDecoder decoder;
  decoder.weights(read, config);
  reader.check_complete();
  decoder.finish();
  return std::make_unique<WanVae>(config, std::move(decoder));
}

}  // namespace sparsereel::models
