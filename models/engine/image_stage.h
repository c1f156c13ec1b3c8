// Turns pictures into the members of a video's conditioning that come from images.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "models/image/image_encoder.h"
#include "models/image/images.h"
#include "models/image/processor_config.h"
#include "models/request/conditioning.h"
#include "models/request/request.h"
#include "models/request/run.h"
#include "models/request/spec.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Returns the input of the VAE's encoder, [1, 3, F, height, width] in [-1, 1]. With ImageSpec::encodes_video, the
/// input is all frames of the plan's video, with gray in place of unknown frames. Otherwise it is the first image
/// alone.
at::Tensor known_frames(const Images& images, const Plan& plan, const ModelSpec& spec,
                        const at::TensorOptions& options);

/// Puts the encoded latents [1, C, F, h, w] where the model expects them. `has_last` says that they include a last
/// image.
void add_latents(Conditioning& conditioning, const LatentDistribution& latents, bool has_last, const Plan& plan,
                 const ModelSpec& spec);

/// Returns the conditioning latents of a video without an image, for a model that takes channels beside the noise:
/// zeros.
at::Tensor latents_without_image(const Plan& plan, const ModelSpec& spec);

/// Returns the first image's latents, [1, C, 1, h, w], from a conditioning that add_latents() has filled in.
at::Tensor first_latent(const Conditioning& conditioning, const Plan& plan, const ModelSpec& spec);

/// Returns the encoder's tokens of the first image, followed by the tokens of the last image if there is one: [1, L,
/// C].
at::Tensor context_of(const Images& images, const ImageEncoder& encoder, const ImageProcessorConfig& config);

/// Replaces latents that are the mean of a distribution by a draw: mean + deviation x noise, with noise of this dtype
/// from the generator. Does nothing if the conditioning has no deviation.
void draw_latents(Conditioning& conditioning, LatentLayout layout, at::ScalarType dtype, at::Generator& generator);

/// Mixes noise from the generator into the conditioning's keyframes, the first one before the last. The weight of a
/// keyframe's latents is ImageSpec::keyframe_time, and that of the noise is 1 - keyframe_time. Does nothing if there
/// are no keyframes.
void draw_keyframes(Conditioning& conditioning, const ImageSpec& spec, at::Generator& generator);

}  // namespace sparsereel::models
