// CogVideoX's VAE: frame batches, tiles, and what they cost.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/families/cogvideox/decoder.h"
#include "models/families/cogvideox/loaders.h"
#include "models/layers/host_memory.h"
#include "models/vae/tiling.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kFramesPerBatch = 2;  // latent frames; the first batch takes what is left over as well
constexpr double kHeightOverlap = 1.0 / 6, kWidthOverlap = 1.0 / 5;

int64_t batches_of(int64_t latent_frames) {
  return std::max<int64_t>(1, latent_frames / kFramesPerBatch);
}

class CogVideoXVae final : public Vae {
 public:
  CogVideoXVae(const CogVideoXVaeConfig& config, CogVideoXDecoder decoder)
      : config_(config), decoder_(std::move(decoder)) {
    tiles_.scale = config.pixels_a_latent();
    tiles_.height = tile_axis(config.sample_height, tiles_.scale, kHeightOverlap);
    tiles_.width = tile_axis(config.sample_width, tiles_.scale, kWidthOverlap);
  }

  at::Tensor decode(const at::Tensor& latents, bool tiled, const DecodeProgress& progress) override;
  int64_t frames_of(int64_t latent_frames) const override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;

 private:
  at::Tensor decode_whole(const at::Tensor& latents, const std::function<void()>& batch_done) const;

  CogVideoXVaeConfig config_;
  CogVideoXDecoder decoder_;
  TilePlan tiles_;
};

int64_t CogVideoXVae::frames_of(int64_t latent_frames) const {
  const auto ratio = static_cast<int64_t>(config_.temporal_compression_ratio);
  return latent_frames % 2 == 0 ? ratio * latent_frames : ratio * (latent_frames - 1) + 1;
}

// latents [1, C, F, H, W] -> [1, 3, F', 8 H, 8 W], batch after batch of frames.
at::Tensor CogVideoXVae::decode_whole(const at::Tensor& latents, const std::function<void()>& batch_done) const {
  const at::Tensor frames = latents[0].permute({1, 2, 3, 0}).contiguous();
  const int64_t total = frames.size(0), scale = tiles_.scale;
  at::Tensor video = at::empty(
      {1, config_.out_channels, frames_of(total), scale * frames.size(1), scale * frames.size(2)}, latents.options());
  ConvHistory history;
  int64_t written = 0;
  for (int64_t batch = 0, start = 0; batch < batches_of(total); ++batch) {
    const int64_t end = std::min(total, kFramesPerBatch * (batch + 1) + total % kFramesPerBatch);
    const at::Tensor decoded = decode_frames(decoder_, frames.narrow(0, start, end - start), history);
    video[0].narrow(1, written, decoded.size(0)).copy_(decoded.permute({3, 0, 1, 2}));
    written += decoded.size(0);
    start = end;
    batch_done();
  }
  return video;
}

at::Tensor CogVideoXVae::decode(const at::Tensor& latents, bool tiled, const DecodeProgress& progress) {
  check_latents(latents, config_.latent_channels);
  return decode_by_plan(
      tiles_, latents * (1.0 / config_.scaling_factor), tiled, batches_of(latents.size(2)), progress,
      [this](const at::Tensor& tile, const auto& batch_done) { return decode_whole(tile, batch_done); });
}

// Elements alive at the worst moment: a block's first convolution holds the block's input, the same normalised behind
// the history, and its output; besides them the history of all convolutions and the video live throughout.
uint64_t CogVideoXVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  const std::vector<int64_t> channels(config_.block_out_channels.rbegin(), config_.block_out_channels.rend());
  const auto ratio = static_cast<int64_t>(config_.temporal_compression_ratio);
  const int64_t convolutions = 2 * (config_.layers_per_block + 1);
  const int64_t first_batch = latent_frames == 1 ? 1 : kFramesPerBatch + latent_frames % kFramesPerBatch;
  int64_t frames = first_batch, pixels = latent_height * latent_width, time = 1, peak = 0, widest = 0;
  int64_t history = kHistoryFrames * pixels * (config_.latent_channels + 4 * channels[0]);
  for (size_t i = 0; i < channels.size(); ++i) {
    const int64_t in = channels[i == 0 ? 0 : i - 1], out = channels[i];
    history += kHistoryFrames * pixels * (in + (convolutions - 1) * out);
    peak = std::max(peak, pixels * ((2 * frames + kHistoryFrames) * in + frames * out));
    widest = std::max(widest, pixels * in);
    if (i + 1 == channels.size()) break;
    pixels *= 4;
    if (time < ratio) {
      time *= 2;
      frames = first_batch % 2 == 0 ? first_batch * time : (first_batch - 1) * time + 1;
    }
  }
  history += kHistoryFrames * pixels * channels.back();
  const int64_t video = config_.out_channels * frames_of(latent_frames) * pixels;
  const at::Tensor& weight = decoder_.conv_in.weight;
  const bool fused = weight.is_cpu() == (weight.scalar_type() == at::kFloat);  // our kernels' dtypes on each device
  // Where the norm is not fused it works on three fp32 copies of a frame.
  const int64_t scratch = fused ? 0 : 3 * static_cast<int64_t>(sizeof(float)) * widest;
  return static_cast<uint64_t>((peak + history + video) * static_cast<int64_t>(weight.element_size()) + scratch);
}

}  // namespace

std::unique_ptr<Vae> load_cogvideox_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                        VaeParts /*parts: it has no encoder here*/) {
  if (device.is_cpu()) keep_freed_host_memory();
  const CogVideoXVaeConfig config = parse_cogvideox_vae_config(component.config, component.config_file);
  WeightReader reader(component, device, dtype);
  reader.ignore_prefix("encoder.");
  reader.ignore_prefix("quant_conv.");
  CogVideoXDecoder decoder = read_cogvideox_decoder(reader, config);
  reader.check_complete();
  return std::make_unique<CogVideoXVae>(config, std::move(decoder));
}

}  // namespace sparsereel::models
