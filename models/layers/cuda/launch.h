// The elementwise kernels of transformer blocks as plain functions: raw pointers, strides and a stream. No torch, no
// CUDA header. Each enqueues one launch, computes in fp32, and returns null or what CUDA said. Their CPU twins are
// layers/row_kernels.h and torch's operators.
#pragma once

#include <cstdint>

#include "attention/cuda/launch.h"
#include "models/files/dtype.h"

namespace sparsereel::models::cuda {

using attention::cuda::Element;
using attention::cuda::Stream;

/// Element, and fp32.
enum class Scalar { fp32, fp16, bf16 };

constexpr int kMaxNormChannels = 5120;       // what four warps hold of a row in registers
constexpr int kMaxQuantizeChannels = 16384;  // and what a block does

/// [batch, tokens, channels] with contiguous channels, a multiple of 8; strides in elements. Rows start on 16 bytes.
struct Rows {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
};

/// fp32 [batch, channels] with contiguous channels; null: left out.
struct Vectors {
  const float* data = nullptr;
  int64_t batch_stride = 0;
};

/// One vector for the first tokens of a sequence (video), one for the rest (text).
struct PartVectors {
  Vectors video{}, text{};
};

/// Which entry of vectors [entries, channels] is each token's: [batch, tokens]; null: that of its batch entry.
struct EntryOfToken {
  const int64_t* data = nullptr;
  int entries = 0;
};

/// residual += gate * update where there is an update, rounded to Element; then
/// out = (norm(residual) * weight + bias) * (1 + scale) + shift.
struct NormModulate {
  int batch = 0;
  int tokens = 0;
  int video_tokens = 0;
  int channels = 0;  // a multiple of 8, at most kMaxNormChannels
  Element element = Element::bf16;
  Rows residual{};
  Rows update{};  // null: none
  Rows out{};
  float* out_scale = nullptr;    // [batch, tokens]: out, rounded to Element, becomes e4m3 with these scales; null: not
  const void* weight = nullptr;  // Element [channels]; null: ones
  const void* bias = nullptr;    // null: zeros
  float eps = 0;
  PartVectors scale{}, shift{}, gate{};
  EntryOfToken entry{};  // of them all
};

const char* norm_modulate(const NormModulate& p, Stream stream);

/// residual += update / rms(update) * gate where there is an update, rounded to Element; then, where there is an out,
/// out = residual / rms(residual) * factor. rms(x) = sqrt(mean(x^2) + eps).
struct RmsNormModulate {
  int batch = 0;
  int tokens = 0;
  int channels = 0;  // a multiple of 8, at most kMaxNormChannels
  Element element = Element::bf16;
  Rows residual{};
  Rows update{};               // null: none
  Rows out{};                  // null: none
  float* out_scale = nullptr;  // as in NormModulate
  float update_eps = 0, eps = 0;
  Vectors gate{}, factor{};  // of each batch entry; on 16 bytes
};

const char* rms_norm_modulate(const RmsNormModulate& p, Stream stream);

/// Rows to e4m3 (layers/e4m3.h): scale = largest / 448, out = x / scale.
struct QuantizeRows {
  int64_t rows = 0;
  int channels = 0;  // a multiple of 8, at most kMaxQuantizeChannels
  Element element = Element::bf16;
  bool gelu = false;        // of gelu(x), by the tanh approximation and rounded to Element
  const void* x = nullptr;  // Element [rows, channels], on 16 bytes
  void* out = nullptr;      // e4m3 [rows, channels]
  float* scale = nullptr;   // [rows]
};

const char* quantize_rows(const QuantizeRows& p, Stream stream);

/// out = a * silu(b), a and b the halves of a row, computed in fp32 and rounded to Element.
struct SwiGlu {
  int64_t rows = 0;
  int channels = 0;  // of out: a multiple of 8, at most kMaxQuantizeChannels
  Element element = Element::bf16;
  const void* x = nullptr;  // Element [rows, 2 channels], on 16 bytes
  void* out = nullptr;      // Element [rows, channels], on 16 bytes, or
  float* scale = nullptr;   // [rows]: out becomes e4m3 with these scales, as by quantize_rows(); null: not
};

const char* swiglu(const SwiGlu& p, Stream stream);

/// residual += gate * update.
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

constexpr int kMaxCopies = 48, kMaxCopyDims = 5;

/// Of words of 16 bytes, on 16 bytes; strides in words. The first dimension is the innermost one.
struct StridedCopy {
  const void* from = nullptr;
  void* to = nullptr;
  int sizes[kMaxCopyDims] = {1, 1, 1, 1, 1};
  int64_t from_strides[kMaxCopyDims]{};
  int64_t to_strides[kMaxCopyDims]{};
  int64_t words = 0;  // all sizes multiplied
};

/// Copies beside each other.
struct StridedCopies {
  StridedCopy copies[kMaxCopies]{};
  int count = 0;
};

const char* copy_strided(const StridedCopies& p, Stream stream);

/// By a copy engine, a call for the first dimension and the longest other one: the rest are to be few.
const char* copy_by_engine(const StridedCopy& given, Stream stream);

constexpr int kMaxFewRows = 4, kMaxProjections = 4;

/// out = x weight^T + bias.
struct Projection {
  const void* weight = nullptr;  // Element [outputs, inputs], rows on 16 bytes
  const void* bias = nullptr;    // Element [outputs]; null: none
  float* out = nullptr;          // [rows, outputs]
  int outputs = 0;
};

/// A few projections of the same few rows: the time is that of reading the weights, once.
struct FewRows {
  int rows = 0;    // 1 to kMaxFewRows
  int inputs = 0;  // a multiple of 8
  Element element = Element::bf16;
  const void* x = nullptr;  // Element [rows, inputs], on 16 bytes
  Projection projections[kMaxProjections]{};
  int count = 0;
};

const char* project_few_rows(const FewRows& p, Stream stream);

/// A weight as a file packs it (layers/cuda/packed_blocks.h) -> elements.
struct UnpackRows {
  Dtype from = Dtype::q8_0;  // packed, or of 8 bits
  Scalar to = Scalar::bf16;
  int64_t rows = 0;
  int64_t columns = 0;           // a multiple of a block's elements
  const void* packed = nullptr;  // on 16 bytes
  const float* scale = nullptr;  // [rows], by which each row is multiplied; null: none
  const float* delta = nullptr;  // [rows, columns], on 16 bytes, which is added then; null: nothing
  void* out = nullptr;           // [rows, columns], on 16 bytes
};

const char* unpack_rows(const UnpackRows& p, Stream stream);

}  // namespace sparsereel::models::cuda
