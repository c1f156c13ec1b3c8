// Wan's VAE: chunks of frames, tiles, patches, and memory estimates.
#include "models/families/wan/loaders.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/families/wan/decoder.h"
#include "models/families/wan/encoder.h"
#include "models/vae/coder_vae.h"

namespace sparsereel::models {
namespace {

// Converts frames [1, colors p p, F, H, W] to [1, colors, F, p H, p W], where p is `patch`. Channels are in the order
// (color, column, row) of a patch.
at::Tensor unpatchify(const at::Tensor& frames, int64_t patch) {
  if (patch == 1) return frames;
  return frames.unflatten(1, {-1, patch, patch}).permute({0, 1, 4, 5, 3, 6, 2}).flatten(5, 6).flatten(3, 4);
}

// Converts frames [colors, F, p H, p W] to [F, H, W, colors p p], the inverse of unpatchify().
at::Tensor patchified(const at::Tensor& frames, int64_t patch) {
  if (patch == 1) return frames.permute({1, 2, 3, 0});
  return frames.unflatten(3, {-1, patch}).unflatten(2, {-1, patch}).permute({1, 2, 4, 0, 5, 3}).flatten(3);
}

/// Returns the scratch memory of a norm, in multiples of its input. On a CPU the norm of half precision is not fused
/// and needs three copies in fp32.
int64_t norm_scratch(at::Device device, at::ScalarType dtype) {
  constexpr int64_t kCopies = 3 * 2;  // three fp32 copies, counted in elements of half precision
  return device.is_cpu() && dtype != at::kFloat ? kCopies : 0;
}

class WanVae final : public CoderVae<WanVaeConfig, WanDecoder, WanEncoder> {
 public:
  WanVae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts)
      : CoderVae(parse_wan_vae_config(component.config, component.config_file, has_encoder(parts)), component, device,
                 dtype, parts),
        norm_scratch_(norm_scratch(device, dtype)) {
    const int64_t pixels = config_.pixels_a_latent();
    tiles_.scale = pixels / config_.patch_size;
    tiles_.height = tiles_.width = fixed_tile_axis(pixels);
    // The reference decides by the picture's size in pixels if it uses tiles, but then counts the size of the tiles in
    // patches.
    encoder_tiles_ = {.height = fixed_tile_axis(tiles_.scale),
                      .width = fixed_tile_axis(tiles_.scale),
                      .scale = pixels,
                      .whole = tiles_.height.size};
  }

  void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
              const VaeProgress& progress) override;
  LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress) override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;
  uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const override;

 private:
  at::Tensor normalized(const at::Tensor& latents) const;
  void decode_whole(const at::Tensor& latents, const RowSplit* rows, const TakeFrames& take) const;
  at::Tensor encode_whole(const at::Tensor& frames, const std::function<void()>& latent_done) const;

  const int64_t norm_scratch_;
  TilePlan encoder_tiles_;
};

at::Tensor WanVae::normalized(const at::Tensor& latents) const {
  return (latents.to(at::kFloat) - channel_values(config_.latents_mean, latents))
      .div_(channel_values(config_.latents_std, latents))
      .to(latents.scalar_type());
}

// Decodes latents [1, C, F, H, W] to frames [1, colors p p, F', s H, s W], where p is the patch size, one latent frame
// at a time.
void WanVae::decode_whole(const at::Tensor& latents, const RowSplit* rows, const TakeFrames& take) const {
  const at::Tensor frames = latents[0].permute({1, 2, 3, 0}).contiguous();
  ConvHistory history{.starts_on_zeros = true, .rows = rows};
  for (const at::Tensor& frame : frames.split(1))
    take(decode_frames(*decoder_, frame, history).permute({3, 0, 1, 2}).unsqueeze(0));
}

void WanVae::decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                    const VaeProgress& progress) {
  if (!decoder_) refuse_to_decode();
  check_latents(latents, config_.z_dim);
  decode_by_plan(
      tiles_, denormalized(latents, config_.latents_mean, config_.latents_std), mode, latents.size(2),
      [&](const at::Tensor& frames) { take(unpatchify(frames, config_.patch_size).clamp_(-1, 1)); }, progress,
      [&](const at::Tensor& tile, const TakeFrames& frame) { decode_whole(tile, mode.rows, frame); });
}

// Encodes frames [1, colors, F', s H, s W] to latents [1, C, F, H, W], the frames of one latent frame at a time.
at::Tensor WanVae::encode_whole(const at::Tensor& frames, const std::function<void()>& latent_done) const {
  const int64_t step = config_.frames_a_latent(), pixels = config_.pixels_a_latent();
  const int64_t total = (frames.size(2) - 1) / step + 1;
  at::Tensor latents =
      at::empty({1, config_.z_dim, total, frames.size(3) / pixels, frames.size(4) / pixels}, frames.options());
  WanVideoEncoder encoder(*encoder_);
  for (int64_t latent = 0; latent < total; ++latent) {
    const int64_t first = latent == 0 ? 0 : step * (latent - 1) + 1;
    const at::Tensor chunk = frames[0].narrow(1, first, latent == 0 ? 1 : step);
    const at::Tensor encoded = encoder.encode(patchified(chunk, config_.patch_size), /*ends=*/latent + 1 == total);
    latents[0].narrow(1, latent, 1).copy_(encoded.permute({3, 0, 1, 2}));
    latent_done();
  }
  return latents;
}

LatentDistribution WanVae::encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress) {
  if (!encoder_) refuse_to_encode();
  check_frames(frames, {.frames = config_.frames_a_latent(), .pixels = config_.pixels_a_latent()});
  const at::Tensor latents = encode_by_plan(
      encoder_tiles_, frames, tiled, (frames.size(2) - 1) / config_.frames_a_latent() + 1, progress,
      [this](const at::Tensor& tile, const auto& latent_done) { return encode_whole(tile, latent_done); });
  return {.mean = normalized(latents), .deviation = {}};
}

// Counts the elements in memory at the moment of the highest use. A residual block holds its input, the history with
// the normalized input, and either a convolution's output or the norm's copies. An upsampler holds its input, the
// enlarged input, and the convolution's output. If there are shortcuts, a level's input is held, too. The history of
// all convolutions and the video are always in memory. Patches become pixels afterwards, one chunk at a time.
uint64_t WanVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  const std::vector<WanVaeLevel> levels = decoder_levels(config_);
  int64_t frames = 1, pixels = latent_height * latent_width;  // frames of one of the chunks after the first
  const int64_t mid = levels.front().in;
  // Attention: the input, the normalized input, q, k, v, the result and its projection.
  int64_t peak = 7 * pixels * mid;
  int64_t history = kHistoryFrames * pixels * (config_.z_dim + 4 * mid);
  for (const WanVaeLevel& level : levels) {
    const int64_t held = config_.is_residual && level.resized > 0 ? frames * pixels * level.in : 0;
    const int64_t narrow = pixels * ((2 * frames + kHistoryFrames) * level.in + frames * level.out);
    const int64_t wide = pixels * ((3 + norm_scratch_) * frames + kHistoryFrames) * level.out;
    const int64_t first_norm = pixels * ((2 + norm_scratch_) * frames + kHistoryFrames) * level.in;
    peak = std::max({peak, narrow, first_norm, held + wide});
    history += kHistoryFrames * pixels * (level.in + (2 * config_.num_res_blocks + 1) * level.out);
    if (level.resized == 0) break;
    if (level.resizes_time) {
      history += kHistoryFrames * pixels * level.out;
      frames *= latent_frames > 1 ? 2 : 1;
      peak = std::max(peak, held + pixels * 5 * frames / 2 * level.out);
    }
    peak = std::max(peak, held + pixels * frames * (5 * level.out + 4 * level.resized));
    pixels *= 4;
  }
  history += kHistoryFrames * pixels * levels.back().out;
  const int64_t video = config_.out_channels * frames_of(latent_frames) * pixels;
  const int64_t pieces = config_.patch_size > 1 ? 2 * config_.out_channels * frames * pixels : 0;
  return static_cast<uint64_t>((std::max(peak, pieces) + history + video) * bytes_of_element());
}

// Counts the elements in memory at the moment of the highest use, as for the decoder. A residual block holds its input,
// the history with the normalized input, and either a convolution's output or the norm's copies. A downsampler holds
// its input, the input padded with zeros, and its output, a quarter of that. A level's shortcut is held, too. The
// patches and the latents are always in memory, and so is the history of all convolutions, which a single picture does
// not need. The output that WanVideoEncoder keeps for repeated frames is not counted: it is at most one more
// activation, which the callers' reserve covers.
uint64_t WanVae::untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const {
  const std::vector<WanVaeLevel> levels = encoder_levels(config_);
  const int64_t patch = config_.patch_size;
  int64_t chunk = frames > 1 ? config_.frames_a_latent() : 1, pixels = height / patch * (width / patch);
  int64_t history = kHistoryFrames * pixels * config_.in_channels;
  int64_t peak = history + chunk * pixels * (config_.in_channels + levels.front().in);
  const int64_t patches = patch > 1 ? chunk * pixels * config_.in_channels : 0;
  for (const WanVaeLevel& level : levels) {
    const int64_t times = level.resizes_time && chunk > 1 ? 2 : 1, places = level.resized > 0 ? 4 * times : 1;
    const int64_t held = config_.is_residual ? chunk * pixels * level.out / places : 0;
    const int64_t narrow = pixels * ((2 * chunk + kHistoryFrames) * level.in + chunk * level.out);
    const int64_t wide = pixels * ((3 + norm_scratch_) * chunk + kHistoryFrames) * level.out;
    const int64_t first_norm = pixels * ((2 + norm_scratch_) * chunk + kHistoryFrames) * level.in;
    if (config_.is_residual) peak = std::max(peak, 2 * chunk * pixels * level.in + held);
    peak = std::max({peak, held + narrow, held + first_norm, held + wide});
    history += kHistoryFrames * pixels * (level.in + (2 * config_.num_res_blocks - 1) * level.out);
    if (level.resized == 0) break;
    peak = std::max(peak, held + chunk * pixels * 5 * level.out / 2);
    pixels /= 4;
    if (!level.resizes_time) continue;
    history += pixels * level.out;
    chunk /= times;
  }
  const int64_t mid = levels.back().out;
  peak = std::max(peak, 7 * chunk * pixels * mid);  // attention, as in the decoder
  history += kHistoryFrames * 5 * pixels * mid;
  const int64_t latents = config_.z_dim * ((frames - 1) / config_.frames_a_latent() + 1) * pixels;
  return static_cast<uint64_t>((peak + (frames > 1 ? history : 0) + patches + latents) * bytes_of_element());
}

}  // namespace

std::unique_ptr<Vae> load_wan_vae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts) {
  return std::make_unique<WanVae>(component, device, dtype, parts);
}

}  // namespace sparsereel::models
