// Mochi's VAE: chunks of frames, tiles, and memory estimates.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/families/mochi/decoder.h"
#include "models/families/mochi/loaders.h"
#include "models/vae/coder_vae.h"

namespace sparsereel::models {
namespace {

// The number of elements that a level processes at once. It is larger if the video is not decoded in tiles. Between two
// parts, each convolution copies its last frames twice, so many small parts cost time.
constexpr int64_t kElementsAtOnce = int64_t{1} << 29, kElementsOfATile = int64_t{1} << 27;

class MochiVae final : public CoderVae<MochiVaeConfig, MochiDecoder> {
 public:
  MochiVae(const Component& component, at::Device device, at::ScalarType dtype)
      : CoderVae(parse_mochi_vae_config(component.config, component.config_file), component, device, dtype,
                 VaeParts::decoder) {
    tiles_.scale = config_.pixels_a_latent();
    tiles_.height = tiles_.width = fixed_tile_axis(tiles_.scale);
  }

  void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
              const VaeProgress& progress) override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;

 private:
  at::Tensor unscaled(const at::Tensor& latents) const;
  void decode_whole(const at::Tensor& latents, int64_t elements, const RowSplit* rows, const TakeFrames& take) const;
};

at::Tensor MochiVae::unscaled(const at::Tensor& latents) const {
  const double factor = 1 / config_.scaling_factor;
  if (config_.latents_mean.empty() || config_.latents_std.empty()) return latents * factor;
  return denormalized(latents, config_.latents_mean, config_.latents_std, factor);
}

// Decodes latents [1, C, F, H, W] and passes on frames [1, colors, F', s H, s W], the frames of one latent frame at a
// time. The first latent frame gives only one frame: of the frames that it is decoded to, all but the last are dropped.
void MochiVae::decode_whole(const at::Tensor& latents, int64_t elements, const RowSplit* rows,
                            const TakeFrames& take) const {
  const at::Tensor frames = latents[0].permute({1, 2, 3, 0}).contiguous();
  ConvHistory history{.rows = rows};
  const int64_t ratio = config_.frames_a_latent();
  at::Tensor waiting;          // decoded frames [frames, height, width, colors] that do not yet complete a latent frame
  int64_t unseen = ratio - 1;  // number of frames that must still be dropped
  decode_frames(*decoder_, frames, history, elements, [&](const at::Tensor& decoded) {
    waiting = waiting.defined() ? at::cat({waiting, decoded}) : decoded;
    const int64_t whole = waiting.size(0) / ratio;
    for (int64_t i = 0; i < whole; ++i) {
      take(waiting.narrow(0, i * ratio + unseen, ratio - unseen).permute({3, 0, 1, 2}).unsqueeze(0));
      unseen = 0;
    }
    waiting = waiting.narrow(0, whole * ratio, waiting.size(0) - whole * ratio);
  });
}

void MochiVae::decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                      const VaeProgress& progress) {
  check_latents(latents, config_.latent_channels);
  const int64_t elements = mode.tiled ? kElementsOfATile : kElementsAtOnce;
  decode_by_plan(
      tiles_, unscaled(latents), mode, latents.size(2), take, progress,
      [&](const at::Tensor& tile, const TakeFrames& piece) { decode_whole(tile, elements, mode.rows, piece); });
}

// Counts the elements in memory at the moment of the highest use. A residual block holds its input, the normalized
// input with history and border, and a convolution's output. Between levels, the expansion's result exists twice while
// its pixels are reordered. In addition, earlier levels hold the input of their next parts. The history of all
// convolutions and the video are always in memory.
uint64_t MochiVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  const std::vector<int64_t>& channels = config_.block_out_channels;
  int64_t frames = latent_frames, height = latent_height, width = latent_width;
  int64_t peak = 0, held = 0, history = 0, blocks = config_.layers_per_block.back();
  for (size_t i = channels.size(); i-- > 0;) {
    const int64_t inner = height * width * channels[i], bordered = (height + 2) * (width + 2) * channels[i];
    blocks += config_.layers_per_block[i];
    const int64_t part = frames_at_once(frames, inner, kElementsAtOnce);
    if (part < frames) held += frames * inner;
    frames = part;
    if (blocks > 0) peak = std::max(peak, held + 2 * frames * inner + (frames + kHistoryFrames) * bordered);
    history += 2 * blocks * kHistoryFrames * bordered;
    blocks = 0;
    if (i == 0) break;
    const int64_t times = config_.temporal_expansions[i - 1], side = config_.spatial_expansions[i - 1];
    const int64_t expanded = frames * height * width * times * side * side * channels[i - 1];
    peak = held + std::max({peak - held, frames * inner + expanded, 2 * expanded});
    frames *= times;
    height *= side;
    width *= side;
  }
  const int64_t video = config_.out_channels * frames_of(latent_frames) * height * width;
  return static_cast<uint64_t>((peak + history + video) * bytes_of_element());
}

}  // namespace

std::unique_ptr<Vae> load_mochi_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                    VaeParts /*parts: the encoder is not supported*/) {
  return std::make_unique<MochiVae>(component, device, dtype);
}

}  // namespace sparsereel::models
