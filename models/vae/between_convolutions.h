// What encoders and decoders do between their convolutions, whatever their norm. Activations as in causal_conv3d.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

class RowSplit;

/// Whether kernels of ours stand between convolutions of x: then they add the biases of the convolutions before them,
/// for which cuDNN's caller takes a pass of its own.
bool carries_biases(const at::Tensor& x);

/// x += residual + bias; bias [C] or undefined.
void add_residual(at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias = {});

/// Every pixel of x [F, H, W, C] 2 x 2 times, then convolved a frame at a time by weight [out, C, 3, 3], channels-last:
/// [F, 2 H, 2 W, out]. bias [out] or undefined. rows: of whose pictures x's frames are pieces; null: of none.
at::Tensor upsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const RowSplit* rows = nullptr);

/// Every second pixel of x [F, H, W, C] convolved a frame at a time by weight [out, C, 3, 3], channels-last, with a row
/// and a column of zeros behind: [F, H / 2, W / 2, out].
at::Tensor downsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace sparsereel::models
