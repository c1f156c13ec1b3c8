// Pairs diffusers' names of layers in Wan's transformer with the authors' names, which all other programs keep. Also
// derives sizes from tensors.
#include "models/families/wan/config.h"
#include "models/families/wan/family.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

constexpr const char* kWidth = "num_attention_heads x attention_head_dim";

Sizes wan_sizes(const nlohmann::json& json, const std::string& file) {
  const WanConfig config = parse_wan_config(json, file);
  return {{"num_layers", config.num_layers},
          {kWidth, config.width()},
          {"ffn_dim", config.ffn_dim},
          {"in_channels", config.in_channels},
          {"image_dim", config.image_dim.value_or(0)},
          {"pos_embed_seq_len", config.pos_embed_seq_len.value_or(0)},
          {"text_dim", config.text_dim}};
}

Sizes wan_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add(kWidth, "blocks.0.attn1.norm_q.weight", 0, 1);
  sizes.add("ffn_dim", "blocks.0.ffn.net.0.proj.weight", 0, 2);
  sizes.add("in_channels", "patch_embedding.weight", 1, 5);
  sizes.add("text_dim", "condition_embedder.text_embedder.linear_1.weight", 1, 2);
  sizes.add_blocks("num_layers", "blocks.");
  const std::string image = "condition_embedder.image_embedder.";
  sizes.add_or_none("image_dim", image + "norm1.weight", 0, 1);
  sizes.add_or_none("pos_embed_seq_len", image + "pos_embed", 1, 3);
  return sizes.found();
}

std::string wan_other_model(const TensorTable& tensors) {
  constexpr std::pair<std::string_view, const char*> kMarks[] = {{"vace_", "VACE"},
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
  return "";
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
      {"blocks.*.attn2.add_k_proj", "blocks.*.cross_attn.k_img"},
      {"blocks.*.attn2.add_v_proj", "blocks.*.cross_attn.v_img"},
      {"blocks.*.attn2.norm_added_k", "blocks.*.cross_attn.norm_k_img"},
      {"blocks.*.ffn.net.0.proj", "blocks.*.ffn.0"},
      {"blocks.*.ffn.net.2", "blocks.*.ffn.2"},
      {"blocks.*.norm2", "blocks.*.norm3"},  // the only one of a block's three norms with weights
      {"blocks.*.scale_shift_table", "blocks.*.modulation"},
      {"condition_embedder.image_embedder.norm1", "img_emb.proj.0"},
      {"condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"},
      {"condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"},
      {"condition_embedder.image_embedder.norm2", "img_emb.proj.4"},
      {"condition_embedder.image_embedder.pos_embed", "img_emb.emb_pos"},
      {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
      {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
      {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
      {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
      {"condition_embedder.time_proj", "time_projection.1"},
      {"proj_out", "head.head"},
      {"scale_shift_table", "head.modulation"}};
  pairs.insert(pairs.end(), others.begin(), others.end());
  return {.others = {pairs}, .prefixes = transformer_prefixes(), .no_weights = {"freqs"}};
}

}  // namespace

Part wan_transformer_part(const char* role, bool optional) {
  return {.role = role,
          .classes = {"WanTransformer3DModel"},
          .optional = optional,
          .names = wan_transformer_names(),
          .sizes_by_config = wan_sizes,
          .sizes_by_tensors = wan_sizes,
          .other_model = wan_other_model};
}

}  // namespace sparsereel::models
