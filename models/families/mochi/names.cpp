// What the tensors of Mochi's transformer and VAE tell of them, under diffusers' names.
#include "models/checkpoint/tensor_sizes.h"
#include "models/families/mochi/config.h"
#include "models/families/mochi/family.h"
#include "models/families/mochi/vae_config.h"

namespace sparsereel::models {

Sizes mochi_sizes(const nlohmann::json& json, const std::string& file) {
  const MochiConfig config = parse_mochi_config(json, file);
  return {{"num_layers", config.num_layers},
          {"num_attention_heads", config.num_attention_heads},
          {"attention_head_dim", config.attention_head_dim},
          {"in_channels", config.in_channels},
          {"pooled_projection_dim", config.pooled_projection_dim},
          {"text_embed_dim", config.text_embed_dim}};
}

Sizes mochi_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add("num_attention_heads", "pos_frequencies", 1, 3);
  sizes.add("attention_head_dim", "transformer_blocks.0.attn1.norm_added_q.weight", 0, 1);
  sizes.add("in_channels", "patch_embed.proj.weight", 1, 4);
  sizes.add("pooled_projection_dim", "time_embed.caption_proj.weight", 0, 2);
  sizes.add("text_embed_dim", "time_embed.caption_proj.weight", 1, 2);
  // No other family's files show heads.
  if (sizes.found().contains("num_attention_heads")) sizes.add_blocks("num_layers", "transformer_blocks.");
  return sizes.found().contains("num_attention_heads") ? sizes.found() : Sizes{};
}

Sizes mochi_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const MochiVaeConfig config = parse_mochi_vae_config(json, file);
  return {{"latent_channels", config.latent_channels},
          {"decoder_block_out_channels", config.block_out_channels.back()},
          {"out_channels", config.out_channels}};
}

Sizes mochi_vae_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add("out_channels", "decoder.proj_out.weight", 0, 2);
  if (sizes.found().empty()) return {};
  sizes.add("latent_channels", "decoder.conv_in.weight", 1, 5);
  sizes.add("decoder_block_out_channels", "decoder.conv_in.weight", 0, 5);
  return sizes.found();
}

}  // namespace sparsereel::models
