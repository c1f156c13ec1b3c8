// What diffusers calls the layers of Wan's transformer, and what its authors do, whose names all other programs keep;
// and what its tensors tell of it.
#include "models/checkpoint/tensor_sizes.h"
#include "models/families/wan/config.h"
#include "models/families/wan/family.h"

namespace sparsereel::models {
namespace {

constexpr const char* kWidth = "num_attention_heads x attention_head_dim";

}  // namespace

Sizes wan_sizes(const nlohmann::json& json, const std::string& file) {
  const WanConfig config = parse_wan_config(json, file);
  return {{"num_layers", config.num_layers},
          {kWidth, config.width()},
          {"ffn_dim", config.ffn_dim},
          {"in_channels", config.in_channels},
          {"text_dim", config.text_dim}};
}

Sizes wan_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add(kWidth, "blocks.0.attn1.norm_q.weight", 0, 1);
  sizes.add("ffn_dim", "blocks.0.ffn.net.0.proj.weight", 0, 2);
  sizes.add("in_channels", "patch_embedding.weight", 1, 5);
  sizes.add("text_dim", "condition_embedder.text_embedder.linear_1.weight", 1, 2);
  sizes.add_blocks("num_layers", "blocks.");
  return sizes.found();
}

std::string wan_other_model(const TensorTable& tensors) {
  constexpr std::pair<std::string_view, const char*> kMarks[] = {
      {"img_emb.", "image to video"},
      {"condition_embedder.image_embedder.", "image to video"},
      {"vace_", "VACE"},
      {"control_adapter.", "camera control"},
      {"ref_conv.", "Fun control"},
      {"casual_audio_encoder.", "speech to video"},
      {"audio_proj.", "speech to video"},
      {"face_adapter.", "Animate"},
      {"pose_patch_embedding.", "Animate"}};
  for (const auto& [prefix, model] : kMarks) {
    const auto found = tensors.lower_bound(std::string(prefix));
    if (found != tensors.end() && found->first.starts_with(prefix)) return model;
  }
  const Sizes sizes = wan_sizes(tensors);
  const auto channels = sizes.find("in_channels");
  return channels != sizes.end() && channels->second == 36 ? "image to video (36 input channels)" : "";
}

StoredNames wan_transformer_names() {
  NameMap::Pairs pairs;
  for (const auto& [ours, theirs] : NameMap::Pairs{{"attn1", "self_attn"}, {"attn2", "cross_attn"}}) {
    for (const auto& [layer, original] : NameMap::Pairs{{"to_q", "q"},
                                                        {"to_k", "k"},
                                                        {"to_v", "v"},
                                                        {"to_out.0", "o"},
                                                        {"norm_q", "norm_q"},
                                                        {"norm_k", "norm_k"}})
      pairs.emplace_back("blocks.*." + ours + "." + layer, "blocks.*." + theirs + "." + original);
  }
  const NameMap::Pairs others = {
      {"blocks.*.ffn.net.0.proj", "blocks.*.ffn.0"},
      {"blocks.*.ffn.net.2", "blocks.*.ffn.2"},
      {"blocks.*.norm2", "blocks.*.norm3"},  // of the three norms of each the only one with weights
      {"blocks.*.scale_shift_table", "blocks.*.modulation"},
      {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
      {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
      {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
      {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
      {"condition_embedder.time_proj", "time_projection.1"},
      {"proj_out", "head.head"},
      {"scale_shift_table", "head.modulation"}};
  pairs.insert(pairs.end(), others.begin(), others.end());
  return {.others = {pairs},
          .prefixes = {"model.diffusion_model.", "diffusion_model.", "model.", "net."},
          .no_weights = {"freqs"}};
}

}  // namespace sparsereel::models
