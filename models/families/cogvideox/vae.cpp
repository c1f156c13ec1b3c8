// CogVideoX's VAE: batches of frames, tiles, and memory estimates.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "models/families/cogvideox/decoder.h"
#include "models/families/cogvideox/encoder.h"
#include "models/families/cogvideox/loaders.h"
#include "models/vae/coder_vae.h"

namespace sparsereel::models {
namespace {

// Number of latent frames that the decoder takes at once, and of frames that the encoder takes at once. If the number
// of a video's frames is not a multiple of this number, the first batch is larger.
constexpr int64_t kFramesPerBatch = 2;
constexpr int64_t kFramesPerEncoderBatch = 8;
constexpr double kHeightOverlap = 1.0 / 6, kWidthOverlap = 1.0 / 5;

int64_t batches_of(int64_t latent_frames) {
  return std::max<int64_t>(1, latent_frames / kFramesPerBatch);
}

int64_t encoder_batches_of(int64_t frames) {
  return std::max<int64_t>(1, frames / kFramesPerEncoderBatch);
}

class CogVideoXVae final : public CoderVae<CogVideoXVaeConfig, CogVideoXDecoder, CogVideoXEncoder> {
 public:
  CogVideoXVae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts)
      : CoderVae(parse_cogvideox_vae_config(component.config, component.config_file, has_encoder(parts)), component,
                 device, dtype, parts) {
    tiles_.scale = config_.pixels_a_latent();
    tiles_.height = tile_axis(config_.sample_height, tiles_.scale, kHeightOverlap);
    tiles_.width = tile_axis(config_.sample_width, tiles_.scale, kWidthOverlap);
  }

  void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
              const VaeProgress& progress) override;
  LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress) override;
  double encoded_scale() const override;
  int64_t frames_of(int64_t latent_frames) const override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;
  uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const override;

 private:
  void decode_whole(const at::Tensor& latents, const RowSplit* rows, const TakeFrames& take) const;
  at::Tensor encode_whole(const at::Tensor& frames, const std::function<void()>& batch_done) const;
  uint64_t bytes(int64_t elements, int64_t widest_frame) const;
};

int64_t CogVideoXVae::frames_of(int64_t latent_frames) const {
  const int64_t ratio = config_.frames_a_latent();
  return latent_frames % 2 == 0 ? ratio * latent_frames : ratio * (latent_frames - 1) + 1;
}

// Decodes latents [1, C, F, H, W] to frames [1, 3, F', 8 H, 8 W], one batch of frames at a time.
void CogVideoXVae::decode_whole(const at::Tensor& latents, const RowSplit* rows, const TakeFrames& take) const {
  const at::Tensor frames = latents[0].permute({1, 2, 3, 0}).contiguous();
  const int64_t total = frames.size(0);
  ConvHistory history{.rows = rows};
  for (int64_t batch = 0, start = 0; batch < batches_of(total); ++batch) {
    const int64_t end = std::min(total, kFramesPerBatch * (batch + 1) + total % kFramesPerBatch);
    const at::Tensor decoded = decode_frames(*decoder_, frames.narrow(0, start, end - start), history);
    start = end;
    take(decoded.permute({3, 0, 1, 2}).unsqueeze(0));
  }
}

void CogVideoXVae::decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                          const VaeProgress& progress) {
  if (!decoder_) refuse_to_decode();
  check_latents(latents, config_.latent_channels);
  decode_by_plan(tiles_, latents * (1.0 / config_.scaling_factor), mode, batches_of(latents.size(2)), take, progress,
                 [&](const at::Tensor& tile, const TakeFrames& batch) { decode_whole(tile, mode.rows, batch); });
}

// Encodes frames [1, 3, F', 8 H, 8 W] to mean and log variance [1, 2 C, F, H, W], one batch of frames at a time.
at::Tensor CogVideoXVae::encode_whole(const at::Tensor& frames, const std::function<void()>& batch_done) const {
  const int64_t total = frames.size(2), batches = encoder_batches_of(total);
  ConvHistory history;
  std::vector<at::Tensor> moments;
  for (int64_t batch = 0, start = 0; batch < batches; ++batch) {
    const int64_t end = std::min(total, kFramesPerEncoderBatch * (batch + 1) + total % kFramesPerEncoderBatch);
    history.ends = batch + 1 == batches;
    moments.push_back(encode_frames(*encoder_, frames[0].narrow(1, start, end - start).permute({1, 2, 3, 0}), history));
    start = end;
    batch_done();
  }
  return at::cat(moments).permute({3, 0, 1, 2}).unsqueeze(0).contiguous();
}

double CogVideoXVae::encoded_scale() const {
  return config_.invert_scale_latents ? config_.scaling_factor * config_.scaling_factor : 1;
}

LatentDistribution CogVideoXVae::encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress) {
  constexpr double kLeastLogVariance = -30, kMostLogVariance = 20;
  if (!encoder_) refuse_to_encode();
  check_frames(frames, {.frames = config_.frames_a_latent(), .pixels = config_.pixels_a_latent()});
  const at::Tensor moments =
      encode_by_plan(tiles_, frames, tiled, encoder_batches_of(frames.size(2)), progress,
                     [this](const at::Tensor& tile, const auto& batch_done) { return encode_whole(tile, batch_done); });
  const std::vector<at::Tensor> halves = moments.to(at::kFloat).chunk(2, 1);
  const double scale = config_.invert_scale_latents ? 1 / config_.scaling_factor : config_.scaling_factor;
  const at::Tensor deviation = halves[1].clamp(kLeastLogVariance, kMostLogVariance).mul_(0.5).exp_();
  return {.mean = (halves[0] * scale).to(frames.scalar_type()),
          .deviation = (deviation * scale).to(frames.scalar_type())};
}

// Counts the elements in memory at the moment of the highest use. During a block's first convolution these are the
// block's input, the history with the normalized input, and the convolution's output. The history of all convolutions
// and the video are always in memory.
uint64_t CogVideoXVae::untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const {
  const std::vector<int64_t> channels(config_.block_out_channels.rbegin(), config_.block_out_channels.rend());
  const int64_t ratio = config_.frames_a_latent();
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
  return bytes(peak + history + video, widest);
}

// Counts the elements in memory at the moment of the highest use. This is the second convolution of an encoder's block,
// which is wider than the first. A single picture needs no history.
uint64_t CogVideoXVae::untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const {
  const std::vector<int64_t>& channels = config_.block_out_channels;
  const int64_t batches = encoder_batches_of(frames), latent_frames = (frames - 1) / config_.frames_a_latent() + 1;
  int64_t batch = frames - (batches - 1) * kFramesPerEncoderBatch;  // frames of the first batch
  int64_t pixels = height * width, peak = 0, widest = 0, history = kHistoryFrames * pixels * config_.in_channels;
  for (size_t i = 0; i < channels.size(); ++i) {
    const int64_t in = channels[i == 0 ? 0 : i - 1], out = channels[i];
    const int64_t held = config_.layers_per_block > 1 ? out : in;
    history += kHistoryFrames * pixels * (in + (2 * config_.layers_per_block - 1) * out);
    peak = std::max({peak, pixels * ((2 * batch + kHistoryFrames) * in + batch * out),
                     pixels * (batch * held + (2 * batch + kHistoryFrames) * out)});
    widest = std::max(widest, pixels * out);
    if (i + 1 == channels.size()) break;
    pixels /= 4;
    if (i < config_.time_halvings()) batch = (batch + 1) / 2;
  }
  history += kHistoryFrames * pixels * 5 * channels.back();
  const int64_t latents = 2 * 2 * config_.latent_channels * latent_frames * pixels;
  return bytes(peak + (batches > 1 ? history : 0) + latents, widest);
}

// Adds scratch memory: on a CPU, the norm in half precision is not fused and needs three fp32 copies of a frame.
uint64_t CogVideoXVae::bytes(int64_t elements, int64_t widest_frame) const {
  const bool fused = !device_.is_cpu() || dtype_ == at::kFloat;
  const int64_t scratch = fused ? 0 : 3 * static_cast<int64_t>(sizeof(float)) * widest_frame;
  return static_cast<uint64_t>(elements * bytes_of_element() + scratch);
}

}  // namespace

std::unique_ptr<Vae> load_cogvideox_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                        VaeParts parts) {
  return std::make_unique<CogVideoXVae>(component, device, dtype, parts);
}

}  // namespace sparsereel::models
