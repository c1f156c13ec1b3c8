// Prepares frames for the encoders, and stores the encoders' results in the conditioning.
#include "models/engine/image_stage.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "models/image/keyframes.h"
#include "models/image/resize.h"
#include "models/request/run.h"
#include "models/samplers/noise.h"

namespace sparsereel::models {

namespace {

/// Stores latents [1, C, 1, h, w] as the video's first latent frame, which denoising does not change.
void keep_first_frame(Conditioning& conditioning, const at::Tensor& latents, const Plan& plan, const ModelSpec& spec) {
  const std::vector<int64_t> shape = latents_shape(spec, plan.latent);
  const int64_t axis = frames_axis(spec.layout), frames = shape[static_cast<size_t>(axis)];
  const int64_t first = frames - plan.latent.frames;  // after the extra frames that padded_frames() adds
  std::vector<int64_t> of_frames = {1, 1, 1, 1, 1};
  of_frames[static_cast<size_t>(axis)] = frames;
  conditioning.latents = at::zeros(shape, latents.options());
  conditioning.latents.select(axis, first).copy_(latents.select(2, 0));
  conditioning.mask = at::ones(of_frames, latents.options());
  conditioning.mask.select(axis, first).zero_();
}

/// Returns [1, stride, F, h, w]: 1 where a frame is given, else 0. Each of the `stride` channels stands for one of the
/// frames that a latent frame encodes. The first latent frame encodes only one frame, so all its channels are 1.
at::Tensor given_frames(const at::Tensor& latents, int64_t stride, bool has_last) {
  at::Tensor given = at::zeros({1, stride, latents.size(2), latents.size(3), latents.size(4)}, latents.options());
  given.select(2, 0).fill_(1);
  if (has_last) given.select(2, given.size(2) - 1).select(1, stride - 1).fill_(1);
  return given;
}

at::Tensor in_layout(const at::Tensor& latents, LatentLayout layout) {
  return layout == LatentLayout::frames_first ? latents.transpose(1, 2).contiguous() : latents;
}

}  // namespace

at::Tensor known_frames(const Images& images, const Plan& plan, const ModelSpec& spec,
                        const at::TensorOptions& options) {
  const auto fit = [&](const Picture& picture) {
    return fit_image(picture, plan.height, plan.width, plan.resize.value_or(ResizeRule::cover)).to(options);
  };
  if (!spec.image.encodes_video) return fit(*images.first);
  at::Tensor frames = at::zeros({1, 3, plan.num_frames, plan.height, plan.width}, options);
  frames.narrow(2, 0, 1).copy_(fit(*images.first));
  if (images.last) frames.narrow(2, plan.num_frames - 1, 1).copy_(fit(*images.last));
  return frames;
}

void add_latents(Conditioning& conditioning, const LatentDistribution& latents, bool has_last, const Plan& plan,
                 const ModelSpec& spec) {
  if (spec.image.latents == ImageSpec::Latents::first_frame_stays)
    return keep_first_frame(conditioning, latents.mean, plan, spec);
  std::vector<int64_t> shape = latents.mean.sizes().vec();
  shape[2] = padded_frames(spec, plan.latent.frames);
  at::Tensor beside = at::zeros(shape, latents.mean.options());
  beside.narrow(2, 0, latents.mean.size(2)).copy_(latents.mean);
  if (spec.image.tells_frames) beside = at::cat({given_frames(beside, spec.stride[0], has_last), beside}, 1);
  conditioning.latents = in_layout(beside, spec.layout);
  if (latents.deviation.defined()) conditioning.deviation = in_layout(latents.deviation, spec.layout);
}

at::Tensor latents_without_image(const Plan& plan, const ModelSpec& spec) {
  return at::zeros(latents_shape(spec, plan.latent), at::kFloat);
}

at::Tensor first_latent(const Conditioning& conditioning, const Plan& plan, const ModelSpec& spec) {
  const int64_t axis = frames_axis(spec.layout), channels = channels_axis(spec.layout);
  const at::Tensor& latents = conditioning.latents;
  const bool stays = spec.image.latents == ImageSpec::Latents::first_frame_stays;
  const at::Tensor first = latents.narrow(axis, stays ? latents.size(axis) - plan.latent.frames : 0, 1)
                               .narrow(channels, latents.size(channels) - spec.latent_channels, spec.latent_channels);
  return spec.layout == LatentLayout::frames_first ? first.transpose(1, 2) : first;
}

at::Tensor context_of(const Images& images, const ImageEncoder& encoder, const ImageProcessorConfig& config) {
  std::vector<at::Tensor> tokens;
  for (const auto& image : {images.first, images.last})
    if (image) tokens.push_back(encoder.forward(encoder_pixels(*image, config)));
  return at::cat(tokens, 1);
}

void draw_latents(Conditioning& conditioning, LatentLayout layout, at::ScalarType dtype, at::Generator& generator) {
  const at::Tensor deviation = std::exchange(conditioning.deviation, {});
  if (!deviation.defined()) return;
  const at::Tensor noise = draw_noise(deviation.sizes(), dtype, generator);
  conditioning.latents = conditioning.latents.clone();  // copied, because another run may use the same conditioning
  const int64_t axis = frames_axis(layout);
  const int64_t channels = channels_axis(layout),
                before = conditioning.latents.size(channels) - deviation.size(channels);
  at::Tensor drawn =
      conditioning.latents.narrow(axis, 0, deviation.size(axis)).narrow(channels, before, deviation.size(channels));
  drawn.add_(deviation.to(drawn.options()) * noise.to(drawn.options()));
}

void draw_keyframes(Conditioning& conditioning, const ImageSpec& spec, at::Generator& generator) {
  for (at::Tensor* keyframe : {&conditioning.first_keyframe, &conditioning.last_keyframe})
    if (keyframe->defined()) *keyframe = noised_keyframe(*keyframe, spec.keyframe_time, generator);
}

}  // namespace sparsereel::models
