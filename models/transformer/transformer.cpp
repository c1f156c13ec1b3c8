// What every family checks of a forward's input.
#include "models/transformer/transformer.h"

#include <ATen/ATen.h>

#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {

hilbert::Grid grid_of_squares(const at::Tensor& latents, int64_t channels, int64_t side,
                              const std::string& config_file) {
  if (latents.dim() != 5 || latents.size(1) != channels || latents.size(3) % side != 0 || latents.size(4) % side != 0 ||
      latents.numel() == 0)
    throw bad_input("latents of shape " + shape_of(latents) + " do not fit " + config_file + ": [B, " +
                        std::to_string(channels) + " channels, frames, height and width in " + std::to_string(side) +
                        "s] are needed",
                    "check the size of the video, and the saved latents where such are used");
  return {latents.size(2), latents.size(3) / side, latents.size(4) / side};
}

void check_conditions(const TransformerInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file) {
  const auto& [latents, conditioning, timesteps] = input;
  const at::Tensor& text = conditioning.text;
  if (text.dim() == 3 && text.size(0) == latents.size(0) && text.size(2) == text_dim && timesteps.dim() == 1 &&
      timesteps.size(0) == latents.size(0))
    return;
  throw bad_input("text embeddings of shape " + shape_of(text) + " or timesteps of shape " + shape_of(timesteps) +
                      " do not fit latents of shape " + shape_of(latents) + " and " + field + " " +
                      std::to_string(text_dim) + " of " + config_file,
                  "use the text encoder that the checkpoint was published with");
}

void check_text_alone(const TransformerInput& input, const std::string& config_file) {
  const Conditioning& given = input.conditioning;
  for (const auto& [name, tensor] :
       {std::pair{"a pooled text", &given.pooled}, std::pair{"image tokens", &given.context},
        std::pair{"condition latents", &given.latents}})
    if (tensor->defined()) throw bad_input(config_file + " is of a model that takes no " + name, "leave them out");
}

}  // namespace sparsereel::models
