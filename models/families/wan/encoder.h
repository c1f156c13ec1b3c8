// The encoder of diffusers' AutoencoderKLWan: its weights, and the encoding of a chunk of frames.
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
  Linear quant_conv;               // [z_dim, 2 z_dim], after everything else; only the rows that give the mean
  bool is_residual = false;        // levels have a shortcut without weights

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Prepares the weights for encoding. Call once, after all weights are loaded.
  void finish();
};

/// Encodes one video, some frames at a time. Where frames repeat those of the call before, as the empty frames after a
/// first image do, more layers reach a fixed point with each call: the same input and the same history give the same
/// output, so these layers are not computed again. The result is the same to the bit.
class WanVideoEncoder {
 public:
  /// Refers to `encoder`.
  explicit WanVideoEncoder(const WanEncoder& encoder);

  /// Encodes the next frames, [F, H, W, in_channels] with patches as channels. Returns the mean of the latents [F', H /
  /// s, W / s, z_dim], where s does not include patches. The first frame of a video comes alone; later calls take the
  /// frames of one or several latent frames. The number of frames per call does not change the result. `ends` says that
  /// no call follows.
  at::Tensor encode(const at::Tensor& frames, bool ends);

  /// Returns how many layers the next call will skip if it repeats the frames of the last one.
  size_t settled_layers() const { return settled_; }

 private:
  using Layer = std::function<at::Tensor(at::Tensor x, ConvHistory& history)>;

  std::vector<Layer> layers_;
  ConvHistory history_;
  at::Tensor frames_;     // of the last call
  size_t settled_ = 0;    // the first so many layers have reached a fixed point
  at::Tensor settled_x_;  // the output of the last one of them
};

}  // namespace sparsereel::models
