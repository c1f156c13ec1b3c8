// The elementwise kernels of transformer blocks as plain functions of raw pointers, strides and a stream. No torch, no
// CUDA header. Each function computes in fp32 and enqueues one launch, unless its comment says otherwise. It returns
// null or CUDA's error message. Their CPU counterparts are layers/row_kernels.h and torch's operators.
#pragma once

#include <cstdint>

#include "attention/cuda/launch.h"
#include "models/files/dtype.h"

namespace sparsereel::models::cuda {

using attention::cuda::Element;
using attention::cuda::Stream;

/// The element types of tensors: fp32, and the types of Element (fp16 and bf16).
enum class Scalar { fp32, fp16, bf16 };

constexpr int kMaxNormChannels = 6144;       // longest row that four warps can hold in registers
constexpr int kMaxQuantizeChannels = 16384;  // longest row that a thread block can hold in registers
constexpr int kMaxRotation = 256;            // largest group of columns that a warp can hold in registers

/// A tensor [batch, tokens, channels]. Channels are contiguous, and their number is a multiple of 8. Strides are in
/// elements; rows are aligned to 16 bytes.
struct Rows {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

/// fp32 [batch, channels] with contiguous channels; data is null if there are no vectors.
struct Vectors {
  const float* data = nullptr;
  int64_t batch_stride = 0;
};

/// One vector for the first tokens of a sequence (video), one for the rest (text).
struct PartVectors {
  Vectors video{}, text{};
};

/// int64 [batch, tokens]: for each token, the row of the vectors [entries, channels] that it uses. If data is null, a
/// token uses the row of its batch entry.
struct EntryOfToken {
  const int64_t* data = nullptr;
  int entries = 0;
};

/// The 8-bit format of rows that a matrix product will read.
struct EightBits {
  bool int8 = false;  // int8 (layers/cuda/int8.h); otherwise e4m3 (layers/cuda/e4m3.h)
  int rotation = 0;   // columns of each group that is rotated before rounding to int8: 0, 16, 64 or 256
};

/// Updates the residual stream and normalizes it. If there is an update: residual += gate * update, rounded to Element.
/// Then out = (norm(residual) * weight + bias) * (1 + scale) + shift.
struct NormModulate {
  int batch = 0;
  int tokens = 0;
  int video_tokens = 0;
  int channels = 0;  // a multiple of 8, at most kMaxNormChannels
  Element element = Element::bf16;
  Rows residual{};
  Rows update{};  // null if there is no update
  Rows out{};
  EightBits to{};  // format of out if out_scale is not null; values are first rounded to Element
  /// [batch, tokens]: the scales of an 8-bit out. Null if out is Element.
  float* out_scale = nullptr;
  const void* weight = nullptr;  // Element [channels]; null for weights of 1
  const void* bias = nullptr;    // null for a bias of 0
  float eps = 0;
  bool centers = true;  // false for an RMS norm, which subtracts no mean
  PartVectors scale{}, shift{}, gate{};
  EntryOfToken entry{};  // the rows of scale, shift and gate
};

const char* norm_modulate(const NormModulate& p, Stream stream);

/// Updates the residual stream and normalizes it. If there is an update: residual += update / rms(update) * gate,
/// rounded to Element. Then, if there is an out, out = residual / rms(residual) * factor. rms(x) = sqrt(mean(x^2) +
/// eps).
struct RmsNormModulate {
  int batch = 0;
  int tokens = 0;
  int channels = 0;  // a multiple of 8, at most kMaxNormChannels
  Element element = Element::bf16;
  Rows residual{};
  Rows update{};               // null if there is no update
  Rows out{};                  // null if only the residual is needed
  float* out_scale = nullptr;  // [batch, tokens]: the scales of an e4m3 out. Null if out is Element
  float update_eps = 0, eps = 0;
  Vectors gate{}, factor{};  // per batch entry; aligned to 16 bytes
};

const char* rms_norm_modulate(const RmsNormModulate& p, Stream stream);

/// Quantizes rows to 8 bits: out = x / scale. A row's scale is its largest magnitude, divided by 448 for e4m3 and by
/// 127 for int8.
struct QuantizeRows {
  int64_t rows = 0;
  int channels = 0;            // a multiple of 8 and of the rotation, at most kMaxQuantizeChannels
  Scalar from = Scalar::bf16;  // type of x; fp32 is allowed only for int8
  EightBits to{};
  bool gelu = false;                    // quantizes gelu(x) (tanh approximation, rounded to x's type) instead of x
  const float* column_scale = nullptr;  // [channels], multiplies x before rounding to int8; null for scales of 1
  const void* x = nullptr;              // [rows, channels], aligned to 16 bytes
  void* out = nullptr;                  // 8 bits [rows, channels]
  float* scale = nullptr;               // [rows]
};

const char* quantize_rows(const QuantizeRows& p, Stream stream);

/// Matrix product of int8 rows: out = sum(x * weight) * x_scale * weight_scale + bias, rounded to Element. The sums are
/// exact. Needs compute capability 8.0 or newer.
struct MultiplyRows {
  int64_t rows = 0;
  int outputs = 0;  // a multiple of 8
  int depth = 0;    // a multiple of 16
  Element element = Element::bf16;
  const int8_t* x = nullptr;            // [rows, depth], aligned to 16 bytes
  const float* x_scale = nullptr;       // [rows]
  const int8_t* weight = nullptr;       // [outputs, depth], aligned to 16 bytes
  const float* weight_scale = nullptr;  // [outputs]
  const void* bias = nullptr;           // Element [outputs]; null if there is no bias
  void* out = nullptr;                  // Element [rows, outputs], aligned to 16 bytes
  int64_t out_stride = 0;               // in elements; a multiple of 8
  bool by_mma = false;  // true: uses the kernel for older GPUs also on compute capability 9.0, with the same result
};

const char* multiply_rows(const MultiplyRows& p, Stream stream);

/// Gated linear unit: out = a * silu(b), where a is the first half of a row's channels and b the second, computed in
/// fp32 and rounded to Element.
struct SwiGlu {
  int64_t rows = 0;
  int channels = 0;  // channels of out: a multiple of 8, at most kMaxQuantizeChannels
  Element element = Element::bf16;
  const void* x = nullptr;  // Element [rows, 2 channels], aligned to 16 bytes
  void* out = nullptr;      // Element [rows, channels], aligned to 16 bytes, or e4m3
  float* scale = nullptr;   // [rows]: the scales of an e4m3 out. Null if out is Element
};

const char* swiglu(const SwiGlu& p, Stream stream);

/// Updates the residual stream: residual += gate * update.
struct AddGated {
  int batch = 0;
  int tokens = 0;
  int video_tokens = 0;
  int channels = 0;  // a multiple of 8
  Element element = Element::bf16;
  Rows residual{};
  Rows update{};
  PartVectors gate{};
  EntryOfToken entry{};
};

const char* add_gated(const AddGated& p, Stream stream);

// The largest number of copies in one launch, and the largest number of dimensions of a copy.
constexpr int kMaxCopies = 48, kMaxCopyDims = 5;

/// A copy of 16-byte words, aligned to 16 bytes. Strides are in words. The first dimension is the innermost.
struct StridedCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int sizes[kMaxCopyDims] = {1, 1, 1, 1, 1};
  int64_t from_strides[kMaxCopyDims]{};
  int64_t to_strides[kMaxCopyDims]{};
  int64_t words = 0;  // product of all sizes
};

/// Copies that run concurrently.
struct StridedCopies {
  StridedCopy copies[kMaxCopies]{};
  int count = 0;
};

const char* copy_strided(const StridedCopies& p, Stream stream);

/// Copies with a copy engine. One CUDA call copies two dimensions: the first one, and the longest of the others. There
/// is one call for each index of the remaining dimensions, so these should be small.
const char* copy_by_engine(const StridedCopy& given, Stream stream);

constexpr int kMaxFewRows = 4, kMaxProjections = 4;

/// One matrix product: out = x weight^T + bias.
struct Projection {
  const void* weight = nullptr;  // Element [outputs, inputs], rows aligned to 16 bytes
  const void* bias = nullptr;    // Element [outputs]; null if there is no bias
  float* out = nullptr;          // [rows, outputs]
  int outputs = 0;
};

/// A few products of the same few rows x. Reading the weights takes most of the time.
struct FewRows {
  int rows = 0;    // 1 to kMaxFewRows
  int inputs = 0;  // a multiple of 8
  Element element = Element::bf16;
  const void* x = nullptr;  // Element [rows, inputs], aligned to 16 bytes
  Projection projections[kMaxProjections]{};
  int count = 0;
};

const char* project_few_rows(const FewRows& p, Stream stream);

/// Unpacks the rows of a packed weight (layers/cuda/packed_blocks.h).
struct UnpackRows {
  Dtype from = Dtype::q8_0;  // a packed or 8-bit type
  Scalar to = Scalar::bf16;
  int64_t rows = 0;
  int64_t columns = 0;           // a multiple of the number of elements in a block
  const void* packed = nullptr;  // aligned to 16 bytes
  const float* scale = nullptr;  // [rows], multiplies each row; null for scales of 1
  const float* delta = nullptr;  // [rows, columns], added after scaling, aligned to 16 bytes; null if nothing is added
  void* out = nullptr;           // [rows, columns], aligned to 16 bytes
};

const char* unpack_rows(const UnpackRows& p, Stream stream);

}  // namespace sparsereel::models::cuda
