// The interface of a VAE of any family to the pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

class RowSplit;
class WeightReader;

/// Called after each finished step of a decode or encode, with the number of finished steps and of all steps.
using VaeProgress = std::function<void(int64_t done, int64_t total)>;

/// Called with the next frames of a video as soon as they are final: [1, 3, f, s H, s W], on the decoder's device.
using TakeFrames = std::function<void(const at::Tensor& frames)>;

/// Options of a decode.
struct DecodeMode {
  bool tiled = false;  // decode in overlapping spatial tiles that are blended (tiling.h)
  /// Set if several ranks decode together, each a band of rows; they never decode in tiles. Null if this rank decodes
  /// alone.
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
  at::Tensor deviation;  // undefined for families that use the mean and do not sample latents
};

/// The size of the loaded weights.
struct VaeWeights {
  uint64_t count = 0, bytes = 0;
};

class Vae {
 public:
  virtual ~Vae() = default;

  /// Decodes latents [1, C, F, H, W] to frames [1, 3, F', s H, s W] with values of about -1 to 1, in the dtype of the
  /// latents. Latents have the scale at which they are denoised and saved. `take` receives the frames a few at a time,
  /// in order. Tiles save memory, but change pixels slightly. With tiles, the first frames come after the last tile.
  ///
  /// If several ranks decode together, all of them must have the latents. Their frames differ from the frames of a
  /// single rank only by rounding, because sums have another order. `take` is called on the first rank only, `progress`
  /// on all. Throws Error if only the encoder was loaded, and as Group does. An exception from `take` or `progress`
  /// ends the decode.
  virtual void decode(const at::Tensor& latents, const DecodeMode& mode, const TakeFrames& take,
                      const VaeProgress& progress) = 0;
  /// Returns true if several ranks can decode a video together.
  virtual bool decodes_in_pieces() const { return false; }
  /// Decodes all frames on this rank.
  at::Tensor decode(const at::Tensor& latents, bool tiled, const VaeProgress& progress = {});
  /// Returns true if the VAE has an encoder and its weights were loaded.
  virtual bool encodes() const { return false; }
  /// Encodes frames [1, 3, r (F - 1) + 1, s H, s W] in [-1, 1] to latents [1, C, F, H, W], in the dtype of the frames.
  /// One latent stands for r frames and s x s pixels. `tiled` asks for tiles, as in decode(). A single frame is encoded
  /// as a picture. Throws Error for other shapes, or if encodes() is false.
  virtual LatentDistribution encode(const at::Tensor& frames, bool tiled, const VaeProgress& progress = {});
  /// Encodes a picture, [1, 3, 1, s H, s W], to the latents [1, C, 1, H, W] in fp32 that stand for it in a video. These
  /// are the mean from encode(), or a sample for families that sample with a generator of their own. Throws Error as
  /// encode() does.
  virtual at::Tensor encode_keyframe(const at::Tensor& frame, const VaeProgress& progress = {});
  /// Returns the factor by which encode()'s latents must be multiplied before decode() takes them.
  virtual double encoded_scale() const { return 1; }
  /// Returns the weights of the parts that were loaded.
  virtual VaeWeights weights() const = 0;
  /// Returns how many frames are decoded from this number of latent frames.
  virtual int64_t frames_of(int64_t latent_frames) const = 0;
  /// Estimates the peak bytes of an untiled decode of this size, without the weights, for VaeTiling::automatic. It
  /// counts the tensors at the moment when they need the most memory, but not the memory that a convolution library
  /// itself uses.
  virtual uint64_t untiled_bytes(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const = 0;
  /// Estimates the peak bytes of an untiled encode of frames of this size in pixels. Works even if the encoder was not
  /// loaded. Throws Error if the family has no encoder.
  virtual uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const;
};

/// Throws Error unless latents are [1, channels, F, H, W] of at least one element.
void check_latents(const at::Tensor& latents, int64_t channels);

/// How many frames, and pixels per side, one latent stands for.
struct VaeStride {
  int64_t frames, pixels;
};

/// Throws Error unless Vae::encode() accepts the frames.
void check_frames(const at::Tensor& frames, const VaeStride& stride);

/// Tells the reader that the file may hold weights of the parts that are not loaded.
void ignore_other_parts(WeightReader& reader, VaeParts parts);

/// Throw Error: refuse_to_decode() because the decoder was not loaded, refuse_to_encode() because the VAE cannot
/// encode.
[[noreturn]] void refuse_to_decode();
[[noreturn]] void refuse_to_encode();

}  // namespace sparsereel::models
