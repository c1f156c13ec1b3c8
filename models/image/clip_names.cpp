#include "models/image/clip_names.h"

#include "models/checkpoint/tensor_sizes.h"
#include "models/image/clip_config.h"

namespace sparsereel::models {

Sizes clip_vision_sizes(const nlohmann::json& json, const std::string& file) {
  const ClipVisionConfig config = parse_clip_vision_config(json, file);
  return {{"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.num_hidden_layers},
          {"patch_size", config.patch_size},
          {"image tokens", config.tokens()}};
}

Sizes clip_vision_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  for (const std::string prefix : {"vision_model.", ""}) {
    const std::string embeddings = prefix + "embeddings.", layers = prefix + "encoder.layers.";
    sizes.add("hidden_size", embeddings + "class_embedding", 0, 1);
    if (sizes.found().empty()) continue;
    sizes.add("image tokens", embeddings + "position_embedding.weight", 0, 2);
    sizes.add("patch_size", embeddings + "patch_embedding.weight", 3, 4);
    sizes.add("intermediate_size", layers + "0.mlp.fc1.weight", 0, 2);
    sizes.add_blocks("num_hidden_layers", layers);
    break;
  }
  return sizes.found();
}

Part clip_vision_part() {
  return {.role = "image_encoder",
          .classes = {"CLIPVisionModelWithProjection", "CLIPVisionModel"},
          .optional = true,
          .sizes_by_config = clip_vision_sizes,
          .sizes_by_tensors = clip_vision_sizes,
          .published = "clip_vision_h.safetensors"};
}

Part clip_processor_part() {
  return {.role = "image_processor",
          .classes = {"CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPImageProcessorPil"},
          .optional = true};
}

}  // namespace sparsereel::models
