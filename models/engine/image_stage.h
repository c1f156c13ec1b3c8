// Pictures -> what of a video is known before it is denoised.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "models/image/image_encoder.h"
#include "models/image/images.h"
#include "models/image/processor_config.h"
#include "models/request/conditioning.h"
#include "models/request/images.h"
#include "models/request/plan.h"
#include "models/request/spec.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// What the encoder of latents is given, [1, 3, F, height, width] in [-1, 1]: the first image, or all frames of the
/// plan's video, of which those that are not known are grey.
at::Tensor known_frames(const Images& images, const Plan& plan, const ModelSpec& spec,
                        const at::TensorOptions& options);

/// Puts latents [1, C, F, h, w] of those frames where the model has them. has_last: among the frames is a last image.
void add_latents(Conditioning& conditioning, const LatentDistribution& latents, bool has_last, const Plan& plan,
                 const ModelSpec& spec);

/// What add_latents() has put there of the first image, [1, C, 1, h, w].
at::Tensor first_latent(const Conditioning& conditioning, const Plan& plan, const ModelSpec& spec);

/// [1, L, C]: the encoder's tokens of the first image and, behind them, of the last one where there is one.
at::Tensor context_of(const Images& images, const ImageEncoder& encoder, const ImageProcessorConfig& config);

/// Draws the latents that are a mean until then: the mean and, times their deviation, noise in this dtype from the
/// generator. Nothing where there are none.
void draw_latents(Conditioning& conditioning, LatentLayout layout, at::ScalarType dtype, at::Generator& generator);

}  // namespace sparsereel::models
