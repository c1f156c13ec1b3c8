// The residual block of causal encoders and decoders, with any norm. Activations are [F, H, W, C], as causal_conv3d.h
// describes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "models/layers/linear.h"
#include "models/vae/between_convolutions.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {

/// The suffix of the names of a block's convolutions, and the name of its shortcut.
struct ResnetNames {
  const char *convolution = ".conv", *shortcut = ".conv_shortcut";
};

template <typename Norm>
struct ResnetBlock {
  Norm norm1;          // over the input channels
  CausalConv3d conv1;  // [out, in, 3, 3, 3]
  Norm norm2;          // over the output channels
  CausalConv3d conv2;  // [out, out, 3, 3, 3]
  Linear shortcut;     // [out, in], undefined if in = out; finish() adds its bias to the bias of conv2

  /// Lists the block's weights. list_norm(norm, name, channels) must list a norm's tensors.
  void weights(const Visit& visit, const std::string& name, int64_t in, int64_t out, const auto& list_norm,
               const ResnetNames& names = {}) {
    list_norm(norm1, name + ".norm1", in);
    conv1.weights(visit, name + ".conv1" + names.convolution, out, in);
    list_norm(norm2, name + ".norm2", out);
    conv2.weights(visit, name + ".conv2" + names.convolution, out, out);
    if (in != out) shortcut.weights(visit, name + names.shortcut, out, in, true, {out, in, 1, 1, 1});
  }
  /// Prepares the weights. Call it once, after all weights are loaded.
  void finish() {
    if (shortcut.weight.defined()) conv2.bias = conv2.bias.add(shortcut.bias);
  }
};

/// Lists `count` blocks NAME.0, NAME.1, .... The first one takes `in` channels.
template <typename Norm>
void list_resnets(std::vector<ResnetBlock<Norm>>& blocks, const Visit& visit, const std::string& name, int64_t count,
                  int64_t in, int64_t out, const auto& list_norm, const ResnetNames& names = {}) {
  blocks.resize(static_cast<size_t>(count));
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i].weights(visit, name + "." + std::to_string(i), i == 0 ? in : out, out, list_norm, names);
}

/// Returns conv(silu(norm(x + bias))). Frees x after the norm, unless the caller also holds it. norm_silu(norm, x, out,
/// bias, rows) must compute out = silu(norm(x + bias)); rows is ConvHistory::rows. If with_bias is false, the
/// convolution's own bias is left out.
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
  const bool carried = carries_biases(x), last_carried = carried && !block.shortcut.weight.defined();
  const at::Tensor first_bias = carried ? block.conv1.bias : at::Tensor();
  at::Tensor hidden = convolve_normed(block.norm1, block.conv1, x, {}, norm_silu, history, !carried);
  hidden = convolve_normed(block.norm2, block.conv2, std::move(hidden), first_bias, norm_silu, history, !last_carried);
  if (!block.shortcut.weight.defined()) {
    add_residual(hidden, x, last_carried ? block.conv2.bias : at::Tensor());
  } else {
    hidden.view({-1, hidden.size(3)}).addmm_(x.view({-1, x.size(3)}), block.shortcut.weight.t());
  }
  return hidden;
}

}  // namespace sparsereel::models
