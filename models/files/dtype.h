// The data types in which files store tensors. No torch, C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sparsereel::models {

/// The data type of a stored tensor: plain numbers, or packed blocks. In a packed type, as in GGUF files, consecutive
/// elements of a row form a block and share scales (layers/cuda/packed_blocks.h). mxfp8, nvfp4, int4 and awq4 are
/// packed formats of ComfyUI. Its files keep a weight's codes and scales in separate tensors, which are joined to
/// blocks when the weight is read.
enum class Dtype {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp8,
  nvfp4,
  int4,
  awq4,
  f8_e8m0,  // one number, a power of two: the scale of an mxfp8 block
};

}  // namespace sparsereel::models
