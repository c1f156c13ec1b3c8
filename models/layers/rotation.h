// The rotation of ConvRot: groups of columns of a weight are multiplied by an orthogonal matrix before they are
// quantized, which spreads large values over the group. The layer's input is multiplied by the same matrix, so the
// product does not change.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// Multiplies each group of `group` columns of rows, fp32 [rows, columns], by the regular Hadamard matrix of that size,
/// in place. `group` is a power of 4 that divides the columns. The matrix is its own inverse. It is the Kronecker power
/// of H4 / 2, where the 4 x 4 matrix H4 has -1 on its antidiagonal and 1 elsewhere.
void rotate_(const at::Tensor& rows, int64_t group);

/// Does what rotate_() does, by matrix products, on any device; rotate_() calls it on a GPU. A group of more than 256
/// columns takes one product for each factor of 256.
void rotate_by_products_(const at::Tensor& rows, int64_t group);

}  // namespace sparsereel::models
