// The operations between the convolutions of encoders and decoders, except norms. Activations are [F, H, W, C], as
// causal_conv3d.h describes.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

class RowSplit;

/// Returns true if our CUDA kernels do the operations between convolutions of x. Then convolutions leave out their
/// biases, and the next operation adds them: cuDNN would need a separate pass for a bias.
bool carries_biases(const at::Tensor& x);

/// Adds residual + bias to x in place. bias is [C] or undefined.
void add_residual(at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias = {});

/// Repeats every pixel of x [F, H, W, C] 2 x 2 times, then convolves each frame. Returns [F, 2 H, 2 W, out]. weight is
/// [out, C, 3, 3], channels-last; bias is [out] or undefined. If `rows` is not null, x is this rank's band of the
/// frames' rows.
at::Tensor upsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const RowSplit* rows = nullptr);

/// Adds a row and a column of zeros at the end of each frame of x [F, H, W, C], then convolves it with stride 2:
/// returns [F, H / 2, W / 2, out]. weight is [out, C, 3, 3], channels-last.
at::Tensor downsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace sparsereel::models
