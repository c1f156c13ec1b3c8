// Elementwise work on rows of fp32 activations on a CPU, one thread per call. layers/norm.cpp splits rows among
// threads. No torch.
#pragma once

#include <cstdint>

namespace sparsereel::models {

/// Rows of `channels` consecutive floats, for layer_norm_rows().
struct LayerNormRows {
  const float* input;   // [rows, channels]
  float* output;        // [rows, channels]; may be `input`
  const float* weight;  // [channels]
  const float* bias;    // [channels]
  int64_t rows;
  int64_t channels;
  float eps;
  bool centers = true;
};

/// Computes output = (input - mean) / sqrt(variance + eps) * weight + bias, with mean and (biased) variance over a row.
/// If `centers` is false, 0 replaces the mean, which gives an RMS norm.
void layer_norm_rows(const LayerNormRows& p);

struct RmsNormRows {
  const float* input;   // [rows, channels]
  float* output;        // [rows, channels]; must not overlap `input`
  const float* factor;  // [channels]
  int64_t rows;
  int64_t channels;
  float eps;
  bool adds;
};

/// Computes output = input / sqrt(mean(input^2) + eps) * factor, or adds this to output if `adds` is true. The mean is
/// over a row.
void rms_norm_rows(const RmsNormRows& p);

struct AddGatedRows {
  float* residual;      // [rows, channels], updated
  const float* update;  // [rows, channels]
  const float* gate;    // [channels]
  int64_t rows;
  int64_t channels;
};

/// Computes residual += gate * update.
void add_gated_rows(const AddGatedRows& p);

}  // namespace sparsereel::models
