// Checks of a forward pass's input, and other functions that families share.
#include "models/transformer/transformer.h"

#include <ATen/ATen.h>

#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {

hilbert::Grid grid_of_patches(const at::Tensor& latents, int64_t channels, const PatchSize& patch,
                              const std::string& config_file, LatentLayout layout) {
  // The axis of the frames, 1 or 2; the other one is the axis of the channels.
  const int64_t frames = layout == LatentLayout::frames_first ? 1 : 2;
  if (latents.dim() == 5 && latents.size(3 - frames) == channels && latents.size(frames) % patch.frames == 0 &&
      latents.size(3) % patch.height == 0 && latents.size(4) % patch.width == 0 && latents.numel() > 0)
    return {latents.size(frames) / patch.frames, latents.size(3) / patch.height, latents.size(4) / patch.width};
  const std::string wanted = std::to_string(channels) + " channels";
  throw bad_input("latents of shape " + shape_of(latents) + " do not fit " + config_file + ", which needs [B, " +
                      (frames == 1 ? "frames, " + wanted : wanted + ", frames") + ", height, width] in patches of " +
                      std::to_string(patch.frames) + " x " + std::to_string(patch.height) + " x " +
                      std::to_string(patch.width),
                  "check the size of the video, and the saved latents if any are used");
}

JointModulation modulation_rows(const at::Tensor& table, int64_t first, int64_t rows, const at::Tensor& row_of_token) {
  Modulation video = {.shift = table.select(1, first), .scale = table.select(1, first + 1), .gate = {}};
  if (rows == 3) video.gate = table.select(1, first + 2);
  return {.video = video, .text = {}, .row_of_token = row_of_token};
}

void check_conditions(const TransformerInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file) {
  const at::Tensor &latents = input.latents, &text = input.conditioning.text, &timesteps = input.timesteps;
  if (text.dim() == 3 && text.size(0) == latents.size(0) && text.size(2) == text_dim && timesteps.dim() == 1 &&
      timesteps.size(0) == latents.size(0))
    return;
  throw bad_input("text embeddings of shape " + shape_of(text) + " or timesteps of shape " + shape_of(timesteps) +
                      " do not fit latents of shape " + shape_of(latents) + " and " + field + " " +
                      std::to_string(text_dim) + " of " + config_file,
                  "use the text encoder that the checkpoint was published with");
}

TransformerInput TransformerInput::to(const at::TensorOptions& options, bool wide_latents) const {
  const at::TensorOptions of_latents = wide_latents ? options.dtype(at::kFloat) : options;
  const auto moved = [&](const at::Tensor& x) { return x.defined() ? x.to(of_latents) : x; };
  const auto placed = [&](const at::Tensor& x) { return x.defined() ? x.to(options.device()) : x; };
  TransformerInput input = {.latents = moved(latents),
                            .conditioning = conditioning.to(options),
                            .timesteps = placed(timesteps),
                            .sound = moved(sound),
                            .sound_timesteps = placed(sound_timesteps),
                            .keyframes = keyframes};
  for (Keyframe& keyframe : input.keyframes) keyframe.latents = moved(keyframe.latents);
  return input;
}

void check_text_alone(const TransformerInput& input, const std::string& config_file) {
  const Conditioning& given = input.conditioning;
  for (const auto& [name, tensor] :
       {std::pair{"pooled text embedding", &given.pooled}, std::pair{"image tokens", &given.context},
        std::pair{"condition latents", &given.latents}})
    if (tensor->defined())
      throw bad_input(config_file + " belongs to a model that takes no " + name, std::string("leave out the ") + name);
}

}  // namespace sparsereel::models
