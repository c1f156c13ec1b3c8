// MiniMax-H3's VAE encoder, a convolutional network, for single pictures only. Its kernels cover three frames. A
// picture needs only the weights of the last of the three, because the frames before a picture are zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/families/minimax_h3/vae_config.h"
#include "models/layers/linear_layer.h"
#include "models/vae/norm_layers.h"

namespace sparsereel::models {

/// A convolution of pictures with a kernel of three by three pixels.
struct PictureConvolution {
  at::Tensor weight;  // [out, in, 3, 3] after finish(); before that [out, in, 3, 3, 3], as files store it
  at::Tensor bias;    // [out]

  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in);
  void finish() { weight = weight.select(2, 2).contiguous(); }
};

struct MiniMaxH3EncoderResnet {
  GroupNorm norm1, norm2;
  PictureConvolution conv1, conv2;
  Linear shortcut;  // [out, in]; undefined if in = out

  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out, const MiniMaxH3VaeConfig& config);
};

struct MiniMaxH3EncoderLevel {
  std::vector<MiniMaxH3EncoderResnet> resnets;
  PictureConvolution downsampler;  // halves the picture; undefined in levels that keep its size
};

/// The encoder, in fp32.
class MiniMaxH3Encoder {
 public:
  void weights(const Visit& visit, const MiniMaxH3VaeConfig& config);
  void finish();

  /// Encodes pictures, fp32 [B, 3, s h, s w] in the model's colors (ModelColors in vae.cpp), to the means and the
  /// logarithms of the variances of their latents, [B, 2 L, h, w]. L is latent_channels and s is pixels_a_latent() of
  /// the config.
  at::Tensor encode(const at::Tensor& pictures) const;

 private:
  PictureConvolution conv_in_, conv_out_;
  std::vector<MiniMaxH3EncoderLevel> levels_;
  GroupNorm norm_out_;
  Linear moments_out_;  // [2 L, 2 L], stored as a convolution kernel
};

}  // namespace sparsereel::models
