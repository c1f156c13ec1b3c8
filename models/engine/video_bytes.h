// The bytes of the largest tensors in the stages of a video. Doubles cannot overflow.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

#include "models/request/request.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Returns the elements of the video: pixels in three colors.
double video_elements(const Plan& plan);
/// Returns the width of the transformer.
double model_width(const ModelSpec& spec);
/// Returns the number of guidance passes in one forward pass.
double passes_at_once(const Plan& plan);

/// Returns the number of elements of a cache while a step is computed. They belong to this step, to the last computed
/// step, which this step will replace, and for a forecast to the step before that. For each step the cache holds the
/// first block's residual of the video tokens in the first forward pass, and the other blocks' residual of all tokens
/// in every pass.
double cache_elements(const Plan& plan, const ModelSpec& spec);

/// Returns the bytes of a block at its widest: the residual, its norm, and the feed-forward's two hidden layers of four
/// times the width. `passes` is the number of guidance passes in one forward pass.
double widest_block(const ModelSpec& spec, double tokens, double passes, uint64_t element);

/// Returns the bytes of a step: a block at its widest, and the cache.
double step_bytes(const Plan& plan, const ModelSpec& spec, uint64_t element);

/// Returns the bytes of the VAE's decoder on a device, in the dtype or in the formats that the VAE chooses.
uint64_t vae_bytes(const Checkpoint& checkpoint, c10::ScalarType dtype, c10::Device device);

/// Returns the bytes of untiled decoding, frames included, with a band of rows on each of `ranks`.
double untiled_decoding(const Vae& vae, const ModelSpec& spec, const LatentSize& size, int64_t ranks);

uint64_t whole_bytes(double bytes);

}  // namespace sparsereel::models
