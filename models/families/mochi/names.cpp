// Pairs diffusers' names of layers in Mochi's transformer and VAE with the authors' names, which all other programs
// keep. Also derives sizes from tensors. The numbers in the VAE's names are those of the published VAE, which has four
// levels.
#include "models/families/mochi/config.h"
#include "models/families/mochi/family.h"
#include "models/families/mochi/vae_config.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

using Pairs = NameMap::Pairs;

constexpr const char *kOurs = "transformer_blocks.*.", *kTheirs = "blocks.*.";

/// Returns the names of the layers that both the video and the text have. The authors' names end with x for the video
/// and with y for the text.
Pairs block_names() {
  Pairs pairs;
  for (const auto& [ours, theirs] : Pairs{{"norm1.linear", "mod_x"},
                                          {"norm1_context.linear", "mod_y"},
                                          {"norm1_context.linear_1", "mod_y"},  // in the last block
                                          {"attn1.norm_q", "attn.q_norm_x"},
                                          {"attn1.norm_k", "attn.k_norm_x"},
                                          {"attn1.norm_added_q", "attn.q_norm_y"},
                                          {"attn1.norm_added_k", "attn.k_norm_y"},
                                          {"attn1.to_out.0", "attn.proj_x"},
                                          {"attn1.to_add_out", "attn.proj_y"},
                                          {"ff.net.2", "mlp_x.w2"},
                                          {"ff_context.net.2", "mlp_y.w2"}})
    pairs.emplace_back(kOurs + ours, kTheirs + theirs);
  return pairs;
}

/// Returns the layers whose rows diffusers stores in another order. In diffusers, a feed-forward's gates are the second
/// half of the rows, after the values that they gate, and the last norm's scales are the first half.
std::vector<MovedRows> moved_rows() {
  std::vector<MovedRows> moved = {{.first = "norm_out.linear", .second = "final_layer.mod", .halves_swapped = true}};
  const std::vector<std::string> of_video = {"to_q", "to_k", "to_v"},
                                 of_text = {"add_q_proj", "add_k_proj", "add_v_proj"};
  for (int64_t part = 0; part < 3; ++part) {
    const auto add = [&](const std::vector<std::string>& layers, const char* theirs) {
      moved.push_back({.first = std::string(kOurs) + "attn1." + layers[static_cast<size_t>(part)],
                       .second = std::string(kTheirs) + "attn." + theirs,
                       .part = part,
                       .parts = 3});
    };
    add(of_video, "qkv_x");
    add(of_text, "qkv_y");
  }
  for (const auto& [ours, theirs] : Pairs{{"ff", "mlp_x"}, {"ff_context", "mlp_y"}})
    moved.push_back(
        {.first = kOurs + ours + ".net.0.proj", .second = kTheirs + theirs + ".w1", .halves_swapped = true});
  return moved;
}

void name_residual_block(Pairs& pairs, const std::string& ours, const std::string& theirs) {
  for (const auto& [layer, original] : Pairs{{".norm1.norm_layer", ".stack.0"},
                                             {".conv1.conv", ".stack.2"},
                                             {".norm2.norm_layer", ".stack.3"},
                                             {".conv2.conv", ".stack.5"}})
    pairs.emplace_back(ours + layer, theirs + original);
}

/// Returns the pairs of the decoder's names. `prefix` comes before the authors' names. The authors' first list,
/// "blocks.0", holds conv_in and three residual blocks.
NameMap decoder_names(const std::string& prefix) {
  constexpr int kBefore = 3, kExpansions = 3;
  const std::string ours = "decoder.", theirs = prefix + "blocks.";
  Pairs pairs = {{ours + "conv_in", theirs + "0.0"}, {ours + "proj_out", prefix + "output_proj"}};
  for (int i = 0; i < kBefore; ++i)
    name_residual_block(pairs, ours + "block_in.resnets." + std::to_string(i), theirs + "0." + std::to_string(i + 1));
  for (int level = 0; level < kExpansions; ++level) {
    const std::string block = ours + "up_blocks." + std::to_string(level),
                      original = theirs + std::to_string(level + 1);
    name_residual_block(pairs, block + ".resnets.*", original + ".blocks.*");
    pairs.emplace_back(block + ".proj", original + ".proj");
  }
  name_residual_block(pairs, ours + "block_out.resnets.*", theirs + std::to_string(kExpansions + 1) + ".*");
  return pairs;
}

StoredNames mochi_transformer_names() {
  Pairs pairs = block_names();
  const Pairs ends = {{"patch_embed.proj", "x_embedder.proj"},
                      {"time_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"},
                      {"time_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"},
                      {"time_embed.pooler", "t5_y_embedder"},
                      {"time_embed.caption_proj", "t5_yproj"},
                      {"proj_out", "final_layer.linear"}};
  pairs.insert(pairs.end(), ends.begin(), ends.end());
  const std::string last = std::string(kOurs) + "norm1_context.linear";
  return {.others = {NameMap(pairs).with_moved_rows(moved_rows())},
          .prefixes = transformer_prefixes(),
          .of_last_block = {{last, last + "_1"}}};
}

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
  // Only Mochi has the tensor that gives num_attention_heads, so the files of other families have no sizes here.
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
  sizes.add("latent_channels", "decoder.conv_in.weight", 1, 5);
  sizes.add("decoder_block_out_channels", "decoder.conv_in.weight", 0, 5);
  return sizes.found().size() == 3 ? sizes.found() : Sizes{};  // other families have only some of these tensors
}

}  // namespace

Part mochi_transformer_part() {
  return {.role = "transformer",
          .classes = {"MochiTransformer3DModel"},
          .names = mochi_transformer_names(),
          .sizes_by_config = mochi_sizes,
          .sizes_by_tensors = mochi_sizes,
          .published =
              "mochi_preview_bf16.safetensors, mochi_preview_fp8_scaled.safetensors or the authors' "
              "dit.safetensors"};
}

Part mochi_vae_part() {
  return {.role = "vae",
          .classes = {"AutoencoderKLMochi"},
          .names = {.others = {decoder_names("decoder."), decoder_names("")}, .prefixes = {"model."}},
          .sizes_by_config = mochi_vae_sizes,
          .sizes_by_tensors = mochi_vae_sizes,
          .published = "mochi_vae.safetensors or the authors' decoder.safetensors"};
}

}  // namespace sparsereel::models
