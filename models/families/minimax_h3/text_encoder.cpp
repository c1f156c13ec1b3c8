// The text encoder ends after an inner layer, without a final norm, because the transformer was trained on that layer's
// output.
#include "models/families/minimax_h3/loaders.h"
#include "models/text/encoder/qwen3_encoder.h"

namespace sparsereel::models {

std::unique_ptr<TextEncoder> load_minimax_h3_text_encoder(const Component& component, at::Device device,
                                                          WeightFormat format, Residence residence) {
  constexpr int64_t kLayers = 50;
  return std::make_unique<Qwen3Encoder>(Qwen3Encoder::load(component, device, format, residence, kLayers));
}

}  // namespace sparsereel::models
