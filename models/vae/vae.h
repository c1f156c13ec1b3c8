// What the pipeline knows of a VAE, whatever its family.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

class RowSplit;
class WeightReader;

/// Called after each finished piece of a decode, or of an encode: done of total.
using VaeProgress = std::function<void(int64_t done, int64_t total)>;

/// Takes the next frames of a video as soon as they are final: [1, colours, f, s H, s W], on the decoder's device.
using TakeFrames = std::function<void(const at::Tensor& frames)>;

/// How a video is decoded.
struct DecodeMode {
  bool tiled = false;              // in overlapping spatial tiles blended as the reference does
  const RowSplit* rows = nullptr;  // by several ranks, a piece of the height each, never in tiles; null: by this one
};

/// Whose weights are loaded.
enum class VaeParts { decoder, encoder, both };

inline bool has_decoder(VaeParts parts) {
  return parts != VaeParts::encoder;
}
inline bool has_encoder(VaeParts parts) {
  return parts != VaeParts::decoder;
}

/// What an encoder says of latents [1, C, F, H, W], at the scale at which they are denoised.
struct LatentDistribution {
  at::Tensor mean;
  at::Tensor deviation;  // of a family that draws from it; else undefined
};

class Vae {
 public:
  virtual ~Vae() = default;

  /// latents [1, C, F, H, W] at the scale in which they are denoised and saved, which the decoder undoes -> frames
  /// [1, 3, F', s H, s W] in about [-1, 1], latents' dtype, a few at a time, in order. In tiles: less memory, slightly
  /// different pixels, and no frame before the last tile. By several ranks, all of which have the latents: the same
  /// frames but for the order of sums; the first rank alone takes them, all make progress. Throws Error where only the
  /// encoder's weights were asked for, and as Group does. What `take` and `progress` throw ends it.
  virtual void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                      const VaeProgress& progress) = 0;
  /// Whether several ranks can decode a video together.
  virtual bool decodes_pieces() const { return false; }
  /// All of them, by this rank.
  at::Tensor decode(const at::Tensor& latents, bool tiled, const VaeProgress& progress = {});
  /// Whether there is an encoder, and its weights were asked for.
  virtual bool encodes() const { return false; }
  /// frames [1, 3, r (F - 1) + 1, s H, s W] in [-1, 1], of r frames and s pixels a latent -> latents [1, C, F, H, W] in
  /// frames' dtype. tiled: as decode(). A single frame is encoded as the picture that it is. Throws Error for frames of
  /// another shape, and unless encodes().
  virtual LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress = {});
  /// What encode()'s latents are to be multiplied with before decode() takes them.
  virtual double encoded_scale() const { return 1; }
  /// Frames that F latent frames decode to.
  virtual int64_t frames_of(int64_t latent_frames) const = 0;
  /// Estimated peak bytes of an untiled decode of this size beside the weights: the tensors that are alive at the worst
  /// moment, without what a convolution library takes for itself. For VaeTiling::automatic.
  virtual uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const = 0;
  /// The same of an untiled encode of frames of this size, in pixels. Throws Error where there is no encoder, whatever
  /// was asked for.
  virtual uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const;
};

/// Throws Error unless latents are [1, channels, F, H, W] of at least one element.
void check_latents(const at::Tensor& latents, int64_t channels);

/// What a latent stands for.
struct VaeStride {
  int64_t frames, pixels;
};

/// Throws Error unless frames are what Vae::encode() takes.
void check_frames(const at::Tensor& frames, const VaeStride& stride);

/// The weights of what was not asked for may be there.
void ignore_other_parts(WeightReader& reader, VaeParts parts);

/// Throws Error that says that weights were not asked for.
[[noreturn]] void refuse_to_decode();
[[noreturn]] void refuse_to_encode();

}  // namespace sparsereel::models
