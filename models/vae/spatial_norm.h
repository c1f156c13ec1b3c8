// Group norm whose scale and shift come from the latents at the same place (Zheng et al., arXiv 2209.09002), with SiLU.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/store/weights/weights.h"
#include "models/vae/norm_layers.h"

namespace sparsereel::models {

class RowSplit;

/// Lists the norm's tensors.
void list_spatial_norm(SpatialNorm& norm, const Visit& visit, const std::string& name, int64_t channels,
                       int64_t latent_channels);

/// Computes out = silu(group_norm(x + input_bias) * conv_y(z) + conv_b(z)), with z repeated to x's size. x and out [T,
/// H, W, C] may be the same tensor; frames of out may lie farther apart. z is [Tz, Hz, Wz, Cz] with H = s Hz and W = s
/// Wz. input_bias is [C] or undefined. conv_y and conv_b are computed before z is repeated: they are pointwise, so the
/// result is the same. If `rows` is not null, x and z are this rank's bands of rows.
void spatial_norm_silu(const SpatialNorm& norm, const at::Tensor& x, const at::Tensor& z, at::Tensor out,
                       const at::Tensor& input_bias = {}, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
