// The sizes of the largest tensors in the stages of a video. Most are doubles, which cannot overflow.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "models/request/request.h"
#include "models/request/spec.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Returns the number of elements of the video's frames: pixels times three colors.
double video_elements(const Plan& plan);
/// Returns the width of the transformer: heads x head_dim.
double model_width(const ModelSpec& spec);
/// Returns the number of guidance passes in one forward pass.
double passes_at_once(const Plan& plan);

/// Returns the number of elements of a cache while a step is computed. The cache holds results of this step and of the
/// last computed step, which this step replaces afterwards. If the rule is not first_block, it also holds results of
/// the computed step before the last one. For each of these steps it holds two residuals: that of the first block, for
/// the video tokens in the first forward pass; and that of the other blocks together, for all tokens in every pass.
double cache_elements(const Plan& plan, const ModelSpec& spec);

/// Returns the bytes that a block needs at its peak: for the residual, its norm, and two hidden tensors of the
/// feed-forward, each of four times the width. `passes` is the number of guidance passes in one forward pass; `element`
/// is the size of an element in bytes.
double widest_block(const ModelSpec& spec, double tokens, double passes, uint64_t element);

/// Returns the bytes of a step: widest_block() and the cache.
double step_bytes(const Plan& plan, const ModelSpec& spec, uint64_t element);

/// Returns the dtype with which describe_vae() (components.h) describes a VAE for a run on this device. It tells a VAE
/// that chooses its own number formats where it will run: fp32 means a CPU, where it multiplies in fp32, and fp16 means
/// a GPU, where it multiplies in fp16.
c10::ScalarType described_vae_dtype(const ModelSpec& spec, c10::ScalarType dtype, c10::Device device);

/// Returns the bytes of the weights of the VAE's decoder on a device. `vae` is the result of describe_vae() for
/// `dtype`, which is the result of described_vae_dtype(). The weights are in `dtype`, or in the formats that the VAE
/// chooses.
uint64_t vae_bytes(const Vae& vae, c10::ScalarType dtype, c10::Device device);

/// Returns the bytes that a rank needs for decoding without tiles, frames included, if each of `ranks` ranks decodes a
/// band of rows.
double untiled_decoding(const Vae& vae, const ModelSpec& spec, const LatentSize& size, int64_t ranks);

uint64_t whole_bytes(double bytes);

}  // namespace sparsereel::models
