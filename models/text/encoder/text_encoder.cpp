// Refuses pictures for encoders that do not look at them.
#include "models/text/encoder/text_encoder.h"

#include "hilbert/error.h"

namespace sparsereel::models {

at::Tensor TextEncoder::forward_with(const at::Tensor& ids, const std::vector<TextPicture>& pictures) const {
  if (pictures.empty()) return forward(ids);
  throw bad_option("image", "is given, but the model's text encoder does not look at pictures",
                   "leave it out, or use a model that takes images");
}

}  // namespace sparsereel::models
