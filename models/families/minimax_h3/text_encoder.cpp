// The transformer was trained on the states between two layers of the text encoder, before any norm.
#include "models/families/minimax_h3/loaders.h"
#include "models/text/encoder/qwen3_encoder.h"

namespace sparsereel::models {

std::unique_ptr<TextEncoder> load_minimax_h3_text_encoder(const Component& component, at::Device device,
                                                          WeightFormat format, Residence residence) {
  constexpr int64_t kLayers = 50;
  return std::make_unique<Qwen3Encoder>(Qwen3Encoder::load(component, device, format, residence, kLayers));
}

}  // namespace sparsereel::models
