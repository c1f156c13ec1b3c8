// The interface of a VAE to the pipeline, for any family.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

class RowSplit;
class WeightReader;

/// Called after each finished piece of a decode or encode: done of total.
using VaeProgress = std::function<void(int64_t done, int64_t total)>;

/// Takes the next frames of a video as soon as they are final: [1, colors, f, s H, s W], on the decoder's device.
using TakeFrames = std::function<void(const at::Tensor& frames)>;

/// Options of a decode.
struct DecodeMode {
  bool tiled = false;  // in overlapping spatial tiles, blended as the reference does
  /// Set if several ranks decode, each a band of rows and never in tiles; null for this rank alone.
  const RowSplit* rows = nullptr;
};

/// The parts whose weights are loaded.
enum class VaeParts { decoder, encoder, both };

inline bool has_decoder(VaeParts parts) {
  return parts != VaeParts::encoder;
}
inline bool has_encoder(VaeParts parts) {
  return parts != VaeParts::decoder;
}

/// An encoder's result for latents [1, C, F, H, W], at the scale at which they are denoised.
struct LatentDistribution {
  at::Tensor mean;
  at::Tensor deviation;  // for families that sample latents; otherwise undefined
};

/// The size of the loaded weights.
struct VaeWeights {
  uint64_t count = 0, bytes = 0;
};

class Vae {
 public:
  virtual ~Vae() = default;

  /// Decodes latents [1, C, F, H, W] to frames [1, 3, F', s H, s W] in about [-1, 1], in latents' dtype. Latents have
  /// the scale at which they are denoised and saved. `take` receives the frames a few at a time, in order. Tiles save
  /// memory, change pixels slightly, and give no frame before the last tile.
  ///
  /// If several ranks decode, all of them have the latents, and the frames differ from those of one rank only by the
  /// order of sums. Only the first rank takes the frames; all report progress. Throws Error if only the encoder was
  /// loaded, and as Group does. Exceptions of `take` and `progress` end the decode.
  virtual void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                      const VaeProgress& progress) = 0;
  /// Returns true if several ranks can decode a video together.
  virtual bool decodes_in_pieces() const { return false; }
  /// Decodes all frames on this rank.
  at::Tensor decode(const at::Tensor& latents, bool tiled, const VaeProgress& progress = {});
  /// Returns true if there is an encoder and its weights were asked for.
  virtual bool encodes() const { return false; }
  /// Encodes frames [1, 3, r (F - 1) + 1, s H, s W] in [-1, 1] to latents [1, C, F, H, W] in frames' dtype. r frames
  /// and s pixels are one latent; tiled is as in decode(). A single frame is encoded as a picture. Throws Error for
  /// other shapes, and unless encodes().
  virtual LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress = {});
  /// Encodes a picture, a single frame as encode() takes it, to the latents [1, C, 1, H, W] that stand for it in a
  /// video, in fp32: the mean of encode(), or a draw if the family draws from a generator of its own. Throws Error as
  /// encode() does.
  virtual at::Tensor encode_keyframe(const at::Tensor& frame, const VaeProgress& progress = {});
  /// Returns the factor by which encode()'s latents must be multiplied before decode() takes them.
  virtual double encoded_scale() const { return 1; }
  /// Returns the weights of the parts that were loaded.
  virtual VaeWeights weights() const = 0;
  /// Returns the number of frames that F latent frames decode to.
  virtual int64_t frames_of(int64_t latent_frames) const = 0;
  /// Estimates the peak bytes of an untiled decode of this size besides the weights, for VaeTiling::automatic. It
  /// counts the tensors alive at the worst moment, but not a convolution library's own memory.
  virtual uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const = 0;
  /// Estimates the peak bytes of an untiled encode of frames of this size in pixels, even if no encoder was loaded.
  /// Throws Error if the family has no encoder.
  virtual uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const;
};

/// Throws Error unless latents are [1, channels, F, H, W] of at least one element.
void check_latents(const at::Tensor& latents, int64_t channels);

/// Frames and pixels per latent.
struct VaeStride {
  int64_t frames, pixels;
};

/// Throws Error unless Vae::encode() accepts the frames.
void check_frames(const at::Tensor& frames, const VaeStride& stride);

/// Lets the file hold weights of parts that are not loaded.
void ignore_other_parts(WeightReader& reader, VaeParts parts);

/// Throws Error saying that the part's weights were not loaded.
[[noreturn]] void refuse_to_decode();
[[noreturn]] void refuse_to_encode();

}  // namespace sparsereel::models
