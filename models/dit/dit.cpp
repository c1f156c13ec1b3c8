// What every family checks of a forward's input.
#include "models/dit/dit.h"

#include <ATen/ATen.h>

#include <sstream>

#include "hilbert/error.h"

namespace sparsereel::models {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

void check_conditions(const DitInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file) {
  const auto& [latents, text, timesteps] = input;
  if (text.dim() == 3 && text.size(0) == latents.size(0) && text.size(2) == text_dim && timesteps.dim() == 1 &&
      timesteps.size(0) == latents.size(0))
    return;
  throw bad_input("text embeddings of shape " + shape_of(text) + " or timesteps of shape " + shape_of(timesteps) +
                      " do not fit latents of shape " + shape_of(latents) + " and " + field + " " +
                      std::to_string(text_dim) + " of " + config_file,
                  "use the text encoder that the checkpoint was published with");
}

}  // namespace sparsereel::models
