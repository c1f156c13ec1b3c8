// Linear layers, alone and with the activation that follows them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/layers/fp8.h"
#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// Returns the best format for the layer's input x [.., in]: an 8-bit format if the layer multiplies in 8 bits and one
/// format suits all its outputs, otherwise x's dtype.
RowFormat format_for(const at::Tensor& x, const Linear& layer);

/// Returns x weight^T + bias [.., out] for x [.., in], in x's dtype. For fp32 on a CPU, oneDNN computes it if torch has
/// oneDNN, because oneDNN's AVX-512 code runs on every vendor's processors, while MKL's (behind at::linear) runs only
/// on Intel processors. With an 8-bit weight, x is quantized (quantize_rows()) unless it is already; 8-bit x needs an
/// 8-bit weight. int8 rows of the weight are multiplied in integers if StoredRows::multiplies is set for them (int8.h).
at::Tensor linear(const Activation& x, const Linear& layer);

/// Writes linear(x, layer) to out [B, N, out], which may be rows of a larger tensor [B, M, out]. On a GPU, this needs
/// no extra pass unless the layer has a bias or an 8-bit weight.
void linear_out(const at::Tensor& out, const Activation& x, const Linear& layer);

/// Returns gelu(linear(x)) by the error function (Hendrycks and Gimpel, arXiv 1606.08415, section 2).
at::Tensor linear_gelu(const Activation& x, const Linear& layer);

/// Returns gelu(linear(x)) by the tanh approximation.
at::Tensor linear_gelu_tanh(const Activation& x, const Linear& layer);

/// Returns linear(linear_gelu_tanh(x, in), out). If the caller moves x in, x is freed before the second product.
at::Tensor feed_forward_gelu_tanh(Activation x, const Linear& in, const Linear& out);

/// Returns linear(a * silu(b), out), where linear(x, in) = (a, b) (Shazeer, arXiv 2002.05202). On a GPU, a * silu(b)
/// takes one pass over memory.
at::Tensor feed_forward_swiglu(const Activation& x, const Linear& in, const Linear& out);

/// Returns linear(x, layer) for each layer, [B, out]. Use it for few rows x [B, in], such as the modulation vectors of
/// a batch, for which reading the weights takes most of the time. On a GPU, up to 4 rows and 4 layers of fp16 or bf16
/// take one kernel launch, and the results are fp32. Otherwise the results have x's dtype.
std::vector<at::Tensor> linear_few_rows(const at::Tensor& x, at::ArrayRef<const Linear*> layers);

}  // namespace sparsereel::models
