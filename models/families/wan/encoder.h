// The encoder of diffusers' AutoencoderKLWan: its weights, and a class that encodes a video chunk by chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanDownBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> downsampler;  // in all but the last level; may also halve the frames
};

struct WanEncoder {
  CausalConv3d conv_in;            // convolution from in_channels to the narrowest level
  std::vector<WanDownBlock> down;  // as encoder_levels() lists them
  WanMidBlock mid;                 // at the widest level
  at::Tensor norm_out;             // [widest]
  CausalConv3d conv_out;           // convolution from the widest level to 2 z_dim channels: mean and log variance
  Linear quant_conv;               // [z_dim, 2 z_dim], after everything else; holds only the rows that compute the mean
  bool is_residual = false;        // true: levels have a shortcut without weights

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Prepares the weights for encoding. Call once, after all weights are loaded.
  void finish();
};

/// Encodes one video, some frames at a time. If calls repeat the same frames, such as the gray frames after a first
/// image, more and more layers see the same input and the same history as in the previous call. They would give the
/// same output, so they are not computed again. The result is the same, bit for bit.
class WanVideoEncoder {
 public:
  /// Keeps a reference to `encoder`, which must outlive this object.
  explicit WanVideoEncoder(const WanEncoder& encoder);

  /// Encodes the next frames, [F, H, W, in_channels], in which the pixels of a patch are channels. Returns the mean of
  /// the latents [F', H / s, W / s, z_dim]; s is the scale without patches. The first frame of a video comes alone;
  /// later calls take the frames of one or several latent frames. The number of frames per call does not change the
  /// result. `ends` says that no call follows.
  at::Tensor encode(const at::Tensor& frames, bool ends);

  /// Returns how many layers the next call will skip if it repeats the frames of the last call.
  size_t settled_layers() const { return settled_; }

 private:
  using Layer = std::function<at::Tensor(at::Tensor x, ConvHistory& history)>;

  std::vector<Layer> layers_;
  ConvHistory history_;
  at::Tensor frames_;     // frames of the last call
  size_t settled_ = 0;    // number of layers, from the first on, that need not be computed again
  at::Tensor settled_x_;  // output of the last of these layers
};

}  // namespace sparsereel::models
