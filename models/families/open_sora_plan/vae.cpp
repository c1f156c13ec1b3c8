// Open-Sora-Plan's VAE: chunks of frames, tiles, and memory estimates.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/families/open_sora_plan/decoder.h"
#include "models/families/open_sora_plan/loaders.h"
#include "models/vae/coder_vae.h"

namespace sparsereel::models {
namespace {

// Settings of the reference's scripts. Each chunk of latent frames begins with the last latent frame of the previous
// chunk. Sizes of tiles are in latents.
constexpr int64_t kChunkFrames = 8, kChunkStride = 7;
constexpr TileAxis kTiles = {.size = 64, .stride = 56};

/// Returns the number of chunks. A chunk begins every kChunkStride latent frames.
int64_t chunks_of(int64_t latent_frames) {
  return std::max<int64_t>(1, (latent_frames - 2) / kChunkStride + 1);
}

class OpenSoraPlanVae final : public CoderVae<OpenSoraPlanVaeConfig, OpenSoraPlanDecoder> {
 public:
  OpenSoraPlanVae(const Component& component, at::Device device, at::ScalarType dtype)
      : CoderVae(parse_open_sora_plan_vae_config(component.config, component.config_file), component, device, dtype,
                 VaeParts::decoder, {"loss."}) {
    tiles_ = {.height = kTiles, .width = kTiles, .scale = config_.pixels_a_latent()};
  }

  void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
              const VaeProgress& progress) override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;

 private:
  void decode_chunk(const at::Tensor& latents, const DecodeMode& mode, int64_t surplus, const TakeFrames& take,
                    const VaeProgress& progress) const;
};

// Decodes a chunk, and drops its first `surplus` frames, which the previous chunk has decoded.
void OpenSoraPlanVae::decode_chunk(const at::Tensor& latents, const DecodeMode& mode, int64_t surplus,
                                   const TakeFrames& take, const VaeProgress& progress) const {
  auto take_new = [&, left = surplus](const at::Tensor& frames) mutable {
    const int64_t seen = std::exchange(left, 0), count = frames.size(2) - seen;
    if (count > 0) take(frames.narrow(2, seen, count));
  };
  decode_by_plan(tiles_, latents, mode, /*steps=*/1, take_new, progress,
                 [&](const at::Tensor& tile, const TakeFrames& piece) {
                   const at::Tensor frames = tile[0].permute({1, 2, 3, 0}).contiguous();
                   piece(decode_frames(*decoder_, frames, mode.rows).permute({3, 0, 1, 2}).unsqueeze(0));
                 });
}

void OpenSoraPlanVae::decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                             const VaeProgress& progress) {
  check_latents(latents, config_.embed_dim);
  const at::Tensor scaled = latents / config_.scaling_factor;
  const int64_t chunks = chunks_of(latents.size(2));
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t start = chunk * kChunkStride, frames = std::min(kChunkFrames, latents.size(2) - start);
    const auto all_progress = [&](int64_t done, int64_t total) {
      if (progress) progress(chunk * total + done, chunks * total);
    };
    decode_chunk(scaled.narrow(2, start, frames), mode, chunk == 0 ? 0 : 1, take, all_progress);
  }
}

// Counts the elements in memory at the moment of the highest use, while a chunk is decoded. A residual block holds its
// input, the history with the normalized input, and a convolution's output. A layer that upsamples holds its input, the
// history with the interpolated input, and its output. In addition, the caller holds the chunk's frames.
uint64_t OpenSoraPlanVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  using Upsampling = OpenSoraPlanVaeConfig::Upsampling;
  int64_t frames = std::min(latent_frames, kChunkFrames), pixels = latent_height * latent_width, peak = 0;
  int64_t in = config_.hidden_size * config_.hidden_size_mult.back();
  for (size_t i = config_.hidden_size_mult.size(); i-- > 0;) {
    const int64_t out = config_.hidden_size * config_.hidden_size_mult[i];
    const int64_t wider = std::max(in, out), inner = frames * pixels * wider;
    peak = std::max(peak, 3 * inner + kHistoryFrames * pixels * wider);
    const int64_t before = frames * pixels * out;
    if (config_.upsampling[i] != Upsampling::none) pixels *= 4;
    if (config_.upsampling[i] == Upsampling::pixels_and_frames) frames = 2 * frames - 1;
    peak = std::max(peak, before + (2 * frames + kHistoryFrames) * pixels * out);
    if (config_.doubles_frames[i]) {
      const int64_t single = frames * pixels * out;
      frames = 2 * frames - 1;
      peak = std::max(peak, single + frames * pixels * out);
    }
    in = out;
  }
  const int64_t video = 3 * frames_of(latent_frames) * pixels;
  return static_cast<uint64_t>((peak + video) * bytes_of_element());
}

}  // namespace

std::unique_ptr<Vae> load_open_sora_plan_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                             VaeParts /*parts: the encoder is not supported*/) {
  return std::make_unique<OpenSoraPlanVae>(component, device, dtype);
}

}  // namespace sparsereel::models
