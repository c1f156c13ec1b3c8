// MiniMax-H3's VAE. It works on overlapping clips of frames, in tiles of one size.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/families/minimax_h3/decoder.h"
#include "models/families/minimax_h3/encoder.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/families/minimax_h3/tiles.h"
#include "models/samplers/noise.h"
#include "models/vae/coder_vae.h"

namespace sparsereel::models {
namespace {

/// The model's colors are red, green and blue in 0..1, less `mean`, divided by `deviation`; both are [1, 3, 1, 1, 1].
struct ModelColors {
  at::Tensor mean, deviation;

  explicit ModelColors(const at::Tensor& like)
      : mean(channel_values({0.485, 0.456, 0.406}, like)), deviation(channel_values({0.229, 0.224, 0.225}, like)) {}
};

/// The reference decodes in fp16 with sums in fp32. bf16 would change pixels by 5% of their range. A CPU multiplies in
/// fp32. On a meta device, which has no weights, `dtype` tells which device is described: fp32 stands for a CPU.
at::ScalarType dtype_of_products(at::Device device, at::ScalarType dtype) {
  const bool is_cpu = device.is_meta() ? dtype == at::kFloat : device.is_cpu();
  return is_cpu ? at::kFloat : at::kHalf;
}

MiniMaxH3VaeConfig vae_config_of(const Component& component) {
  MiniMaxH3VaeConfig config = parse_minimax_h3_vae_config(component.config, component.config_file);
  config.has_fused_heads = component.tensors.contains("decoder.transformer_blocks.0.attn.to_qkv.weight");
  return config;
}

class MiniMaxH3Vae final : public CoderVae<MiniMaxH3VaeConfig, MiniMaxH3Decoder, MiniMaxH3Encoder> {
 public:
  MiniMaxH3Vae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts)
      : CoderVae(vae_config_of(component), component, device, dtype_of_products(device, dtype), parts) {}

  /// Always decodes in tiles, because the tile size is part of the model.
  void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
              const VaeProgress& progress) override;
  bool decodes_in_pieces() const override { return false; }
  int64_t frames_of(int64_t latent_frames) const override {
    return clips_of(latent_frames) * config_.clip_length + config_.overlapping_frames();
  }
  LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress) override;
  at::Tensor encode_keyframe(const at::Tensor& frame, const VaeProgress& progress) override;
  uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override;
  uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const override;

 private:
  int64_t clips_of(int64_t latent_frames) const {
    return (latent_frames - config_.overlapping_latents()) / config_.latents_a_clip();
  }
  void check_clips(int64_t latent_frames) const;
  LatentDistribution encode_raw(const at::Tensor& frames, const VaeProgress& progress) const;
  at::Tensor normalized(const at::Tensor& latents) const;
  at::Tensor decode_clip(const at::Tensor& latents, const std::function<void()>& step_done) const;
};

void MiniMaxH3Vae::check_clips(int64_t latent_frames) const {
  const int64_t overlap = config_.overlapping_latents(), clip = config_.latents_a_clip();
  if (latent_frames >= clip + overlap && (latent_frames - overlap) % clip == 0) return;
  throw bad_input("the VAE cannot decode " + std::to_string(latent_frames) + " latent frames: it needs " +
                      std::to_string(clip) + " for each clip of " + std::to_string(config_.clip_length) +
                      " frames, and " + std::to_string(overlap) + " more",
                  "give " + std::to_string(clip + overlap) + ", " + std::to_string(2 * clip + overlap) + ", " +
                      std::to_string(3 * clip + overlap) + ", ... latent frames");
}

/// Decodes the latents of a clip and the overlapping latents after it, fp32 [1, L, f, h, w], to [1, 3, t f, s h, s w].
at::Tensor MiniMaxH3Vae::decode_clip(const at::Tensor& latents, const std::function<void()>& step_done) const {
  const int64_t scale = config_.pixels_a_latent();
  return run_in_tiles({.whole = latents,
                       .in = 1,
                       .out = scale,
                       .rows = fixed_tiles(latents.size(3), scale),
                       .columns = fixed_tiles(latents.size(4), scale),
                       .run = [&](const at::Tensor& tiles) {
                         at::Tensor pixels = decoder_->decode(tiles, config_);
                         step_done();
                         return pixels;
                       }});
}

void MiniMaxH3Vae::decode(const at::Tensor& latents, const DecodeMode& /*mode*/, const TakeFrames& take,
                          const VaeProgress& progress) {
  if (!decoder_) refuse_to_decode();
  check_latents(latents, config_.latent_channels);
  check_clips(latents.size(2));
  const int64_t clips = clips_of(latents.size(2)), clip_latents = config_.latents_a_clip();
  const int64_t unseen = config_.unseen_frames(), shared = config_.overlapping_frames();
  const int64_t steps = clips * std::ssize(fixed_tiles(latents.size(3), config_.pixels_a_latent()).starts);
  int64_t done = 0;
  const auto step_done = [&] {
    if (++done; progress) progress(done, steps);
  };
  const ModelColors colors(latents);
  const auto hand_out = [&](const at::Tensor& frames) {
    take((frames * colors.deviation + colors.mean).clamp_(0, 1).mul_(2).sub_(1).to(latents.scalar_type()));
  };
  const at::Tensor all = denormalized(latents.to(at::kFloat), config_.latents_mean, config_.latents_std);
  at::Tensor overlap;  // this clip's first frames, as decoded with the previous clip
  for (int64_t i = 0; i < clips; ++i) {
    const at::Tensor frames =
        decode_clip(all.narrow(2, i * clip_latents, clip_latents + config_.overlapping_latents()), step_done);
    const at::Tensor own = frames.narrow(2, unseen, config_.clip_length);
    if (overlap.defined() && shared > 0)
      own.narrow(2, 0, shared).copy_(cross_faded(overlap, own.narrow(2, 0, shared), 2));
    overlap = frames.narrow(2, unseen + clip_latents * config_.frames_a_latent(), shared).clone();
    hand_out(own);
  }
  if (shared > 0) hand_out(overlap);
}

/// Returns the distribution of latents in fp32, as the encoder's network gives it, before normalization.
LatentDistribution MiniMaxH3Vae::encode_raw(const at::Tensor& frames, const VaeProgress& progress) const {
  if (!encoder_) refuse_to_encode();
  const int64_t scale = config_.pixels_a_latent();
  check_frames(frames, {.frames = 1, .pixels = scale});
  if (frames.size(2) != 1)
    throw bad_input("the VAE cannot encode " + std::to_string(frames.size(2)) + " frames: it encodes single pictures",
                    "encode each picture alone");
  if (std::min(frames.size(3), frames.size(4)) < 2 * scale)  // a mirrored border needs at least two latents
    throw bad_input("the VAE cannot encode an image of " + std::to_string(frames.size(4)) + "x" +
                        std::to_string(frames.size(3)) + ": it needs at least " + std::to_string(2 * scale) + "x" +
                        std::to_string(2 * scale),
                    "give a larger image");
  const ModelColors colors(frames);
  const FixedTiles rows = fixed_tiles(frames.size(3) / scale, scale);
  int64_t done = 0;
  const at::Tensor moments = run_in_tiles({.whole = ((frames.to(at::kFloat) + 1) / 2 - colors.mean) / colors.deviation,
                                           .in = scale,
                                           .out = 1,
                                           .rows = rows,
                                           .columns = fixed_tiles(frames.size(4) / scale, scale),
                                           .run = [&](const at::Tensor& tiles) {
                                             at::Tensor latents = encoder_->encode(tiles.squeeze(2)).unsqueeze(2);
                                             if (++done; progress) progress(done, std::ssize(rows.starts));
                                             return latents;
                                           }});
  // Limits for the logarithms of variances, fixed by the reference.
  constexpr double kLeastLogarithm = -30, kMostLogarithm = 20;
  const std::vector<at::Tensor> parts = moments.chunk(2, 1);
  return {.mean = parts[0], .deviation = (parts[1].clamp(kLeastLogarithm, kMostLogarithm) / 2).exp()};
}

at::Tensor MiniMaxH3Vae::normalized(const at::Tensor& latents) const {
  return (latents - channel_values(config_.latents_mean, latents)) / channel_values(config_.latents_std, latents);
}

LatentDistribution MiniMaxH3Vae::encode(const at::Tensor& frames, bool /*tiled*/, const VaeProgress& progress) {
  const LatentDistribution raw = encode_raw(frames, progress);
  const at::Tensor deviation = raw.deviation / channel_values(config_.latents_std, raw.deviation);
  return {.mean = normalized(raw.mean).to(frames.scalar_type()), .deviation = deviation.to(frames.scalar_type())};
}

/// Draws each picture's latents with a new generator of a fixed seed, and rounds them to fp16, as the reference does.
at::Tensor MiniMaxH3Vae::encode_keyframe(const at::Tensor& frame, const VaeProgress& progress) {
  constexpr uint64_t kSeed = 42;
  const LatentDistribution raw = encode_raw(frame, progress);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  const at::Tensor noise = draw_noise(raw.mean.sizes(), at::kFloat, generator).to(raw.mean.device());
  return normalized((raw.mean + raw.deviation * noise).to(at::kHalf).to(at::kFloat));
}

/// Returns the largest part of a tile that its neighbor also covers.
double largest_overlap(const FixedTiles& tiles) {
  int64_t most = 0;
  for (size_t i = 0; i < tiles.starts.size(); ++i) most = std::max(most, tiles.overlap(i));
  return static_cast<double>(most) / static_cast<double>(tiles.size);
}

// Returns the largest of three amounts, plus the frames that are kept of the previous clip. The first amount is that of
// a row of tiles that passes a block's feed-forward (the residual stream, its norm and the update in fp32, and the
// gated values) or becomes pixels. The second is that of a row of tiles that is blended: its pixels, their blended copy
// and, below other tiles, the pixels of the row above. The third is that of a clip's frames that get their colors.
uint64_t MiniMaxH3Vae::untiled_bytes(int64_t /*latent_frames*/, int64_t latent_height, int64_t latent_width) const {
  const int64_t scale = config_.pixels_a_latent(), channels = config_.decoder_width();
  const int64_t latent_frames = config_.latents_a_clip() + config_.overlapping_latents();
  const FixedTiles rows = fixed_tiles(latent_height, scale), columns = fixed_tiles(latent_width, scale);
  const int64_t patches = latent_frames * rows.size * columns.size, across = std::ssize(columns.starts);
  const int64_t tokens = across * (patches + config_.decoder_num_register_tokens + 1);
  const auto bytes_of_pixels = [&](int64_t height, int64_t width) {
    return static_cast<double>(latent_frames * config_.frames_a_latent() * 3 * height * width * scale * scale * 4);
  };
  const double row = bytes_of_pixels(rows.size, across * columns.size),
               clip = bytes_of_pixels(latent_height, latent_width);
  const auto share = [&](int64_t frames) {
    return clip * static_cast<double>(frames) / static_cast<double>(latent_frames * config_.frames_a_latent());
  };
  const auto residual = static_cast<double>(tokens * channels * 4);
  const double block =
      3 * residual + static_cast<double>(tokens * channels * 3 * config_.decoder_ffn_mult * bytes_of_element());
  const double above = std::ssize(rows.starts) > 1 ? row : 0;
  const double work = (above > 0 ? clip + above : 0) + std::max(block, residual + 2 * row);
  const double blend = clip + above + (2 + std::max(largest_overlap(rows), largest_overlap(columns) / 2)) * row;
  const double colors = clip + 2 * share(config_.clip_length);
  return static_cast<uint64_t>(std::max({work, blend, colors}) + share(config_.overlapping_frames()));
}

// Counts the first level, whose activations are the largest, for a row of tiles. This is a block's input, its hidden
// values, its update, and the input of its convolution, with a border and in the convolution's own layouts.
uint64_t MiniMaxH3Vae::untiled_encode_bytes(int64_t /*frames*/, int64_t height, int64_t width) const {
  constexpr int64_t kCopies = 7;
  const int64_t scale = config_.pixels_a_latent();
  const FixedTiles rows = fixed_tiles(height / scale, scale), columns = fixed_tiles(width / scale, scale);
  const int64_t pixels = std::ssize(columns.starts) * rows.size * columns.size * scale * scale;
  return static_cast<uint64_t>(pixels * (config_.block_out_channels.front() * kCopies + 3) * 4);
}

}  // namespace

std::unique_ptr<Vae> load_minimax_h3_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                         VaeParts parts) {
  return std::make_unique<MiniMaxH3Vae>(component, device, dtype, parts);
}

}  // namespace sparsereel::models
