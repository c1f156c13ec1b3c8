// The residual block of causal encoders and decoders, whatever their norms. Activations are those of causal_conv3d.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "models/store/weights/weights.h"
#include "models/vae/between_convolutions.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {

template <typename Norm>
struct ResnetBlock {
  Norm norm1;           // in channels
  CausalConv3d conv1;   // [out, in, 3, 3, 3]
  Norm norm2;           // out channels
  CausalConv3d conv2;   // [out, out, 3, 3, 3]
  at::Tensor shortcut;  // [in, out], undefined where in = out; its bias is part of conv2's
};

/// read_norm(name, channels) -> Norm. shortcut: what the block calls it.
template <typename Norm>
ResnetBlock<Norm> read_resnet(WeightReader& reader, const std::string& name, int64_t in, int64_t out,
                              const auto& read_norm, const std::string& shortcut = "conv_shortcut") {
  ResnetBlock<Norm> block{.norm1 = read_norm(name + ".norm1", in),
                          .conv1 = read_causal_conv3d(reader, name + ".conv1", in, out),
                          .norm2 = read_norm(name + ".norm2", out),
                          .conv2 = read_causal_conv3d(reader, name + ".conv2", out, out),
                          .shortcut = {}};
  if (in != out) {
    block.shortcut = reader.tensor(name + "." + shortcut + ".weight", {out, in, 1, 1, 1}).view({out, in}).t();
    block.conv2.bias = block.conv2.bias + reader.tensor(name + "." + shortcut + ".bias", {out});
  }
  return block;
}

/// conv(silu(norm(x + bias))); x is let go as soon as it is normalised, which frees it unless the caller holds it.
/// norm_silu(norm, x, out, bias, rows): out = silu(norm(x + bias)), rows as in ConvHistory.
at::Tensor convolve_normed(const auto& norm, const CausalConv3d& conv, at::Tensor x, const at::Tensor& bias,
                           const auto& norm_silu, ConvHistory& history, bool with_bias = true) {
  const Border border = conv.border(history.rows);
  const at::Tensor buffer = causal_buffer(x.size(0), x.size(1), x.size(2), x.size(3), x.options(), border);
  norm_silu(norm, x, new_frames(buffer, border), bias, history.rows);
  x.reset();
  return causal_conv3d(conv, buffer, history, with_bias);
}

template <typename Norm>
at::Tensor resnet(const ResnetBlock<Norm>& block, const at::Tensor& x, const auto& norm_silu, ConvHistory& history) {
  const bool carried = carries_biases(x), last_carried = carried && !block.shortcut.defined();
  const at::Tensor first_bias = carried ? block.conv1.bias : at::Tensor();
  at::Tensor hidden = convolve_normed(block.norm1, block.conv1, x, {}, norm_silu, history, !carried);
  hidden = convolve_normed(block.norm2, block.conv2, std::move(hidden), first_bias, norm_silu, history, !last_carried);
  if (!block.shortcut.defined()) {
    add_residual(hidden, x, last_carried ? block.conv2.bias : at::Tensor());
  } else {
    hidden.view({-1, hidden.size(3)}).addmm_(x.view({-1, x.size(3)}), block.shortcut);
  }
  return hidden;
}

}  // namespace sparsereel::models
