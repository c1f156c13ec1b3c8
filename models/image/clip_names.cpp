// Lists the tensor names, sizes and parts of CLIP's vision transformer.
#include "models/image/clip_names.h"

#include "models/image/clip_config.h"
#include "models/store/checkpoint/tensor_sizes.h"

namespace sparsereel::models {

std::string clip_fused_layer(const std::string& attention) {
  return attention + "qkv";
}

StoredNames clip_vision_names() {
  const NameMap::Pairs authors = {{"embeddings.class_embedding", "cls_embedding"},
                                  {"embeddings.position_embedding.weight", "pos_embedding"},
                                  {"embeddings.patch_embedding", "patch_embedding"},
                                  {"pre_layrnorm", "pre_norm"},
                                  {"encoder.layers.*.layer_norm1", "transformer.*.norm1"},
                                  {clip_fused_layer("encoder.layers.*.self_attn."), "transformer.*.attn.to_qkv"},
                                  {"encoder.layers.*.self_attn.out_proj", "transformer.*.attn.proj"},
                                  {"encoder.layers.*.layer_norm2", "transformer.*.norm2"},
                                  {"encoder.layers.*.mlp.fc1", "transformer.*.mlp.0"},
                                  {"encoder.layers.*.mlp.fc2", "transformer.*.mlp.2"},
                                  {"post_layernorm", "post_norm"}};
  return {.others = {authors}, .prefixes = {"visual."}};
}

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
    sizes.add("hidden_size", embeddings + "class_embedding", 2, 3);  // the shape in files of the video model's authors
    if (sizes.found().empty()) continue;
    sizes.add("image tokens", embeddings + "position_embedding.weight", 0, 2);
    sizes.add("image tokens", embeddings + "position_embedding.weight", 1, 3);
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
          .names = clip_vision_names(),
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
