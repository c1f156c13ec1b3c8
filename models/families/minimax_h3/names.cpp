// Pairs diffusers' names of layers in MiniMax-H3's transformer and VAE with the authors' names, which all other
// programs keep. Also derives sizes from tensors.
#include "models/families/minimax_h3/names.h"

#include "models/families/minimax_h3/config.h"
#include "models/families/minimax_h3/fused_names.h"
#include "models/families/minimax_h3/sound_config.h"
#include "models/families/minimax_h3/vae_config.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

using Pairs = NameMap::Pairs;

constexpr const char *kHeadsWidth = "num_attention_heads x attention_head_dim", *kFeedForwardRows = "2 x ffn_dim",
                     *kPatchElements = "in_channels x patch_size", *kWidthOfDecoder = "decoder's width";

/// Returns the prefixes of the lists of layers, each under diffusers' name and under the authors' name.
Pairs lists_of_layers() {
  return {{"transformer_blocks.*.", "blocks.*."}, {"token_refiner.refiner_blocks.*.", "token_refiner.blocks.*."}};
}

NameMap h3_transformer_names(FusedRows order) {
  Pairs pairs = {{"proj_in", "video_patch_proj"},
                 {"audio_proj_in", "audio_patch_proj"},
                 {"context_embedder", "condition_proj"},
                 {"time_embedder.linear_1", "time_embedder.proj_in"},
                 {"time_embedder.linear_2", "time_embedder.proj_out"},
                 {"norm_out.norm", "final_layer.norm"},
                 {"norm_out.linear", "final_layer.adaln_proj.linear"},
                 {"proj_out", "final_layer.video_out"},
                 {"audio_proj_out", "final_layer.audio_out"}};
  std::vector<MovedRows> moved;
  for (const auto& [ours, theirs] : lists_of_layers()) {
    for (const auto& [layer, original] : Pairs{{"norm1", "norm1"},
                                               {"norm2", "norm2"},
                                               {"attn.norm_q", "attn.q_norm"},
                                               {"attn.norm_k", "attn.k_norm"},
                                               {"attn.to_out.0", "attn.out_proj"},
                                               {"ff.net.2", "mlp.fc2"},
                                               {"adaln_proj.linear", "adaln_proj.linear"}})
      pairs.emplace_back(ours + layer, theirs + original);
    const std::vector<std::string> projections = {"to_q", "to_k", "to_v"};
    for (size_t i = 0; i < projections.size(); ++i)
      moved.push_back({.first = ours + "attn." + projections[i],
                       .second = theirs + "attn.qkv_proj",
                       .part = static_cast<int64_t>(i),
                       .parts = std::ssize(projections),
                       .turns_like = order == FusedRows::by_head ? "q_norm.weight" : ""});
    moved.push_back({.first = ours + "ff.net.0.proj", .second = theirs + "mlp.fc1", .halves_swapped = true});
  }
  return NameMap(pairs).with_moved_rows(moved);
}

constexpr size_t kByKind = 0, kByHead = 1;  // indices of the names in minimax_h3_transformer_part()

ChosenNames choose_transformer_names(const TensorTable& tensors, const StoredWeights& weights) {
  const auto by_numbers = fused_rows_by_numbers(tensors, weights);
  const FusedRows order = by_numbers ? *by_numbers : fused_rows_by_form(tensors, weights);
  return {.index = order == FusedRows::by_kind ? kByKind : kByHead,
          .doubt = by_numbers ? "" : doubt_about_rows(tensors, weights, order)};
}

Sizes h3_transformer_sizes(const nlohmann::json& json, const std::string& file) {
  const MiniMaxH3Config config = parse_minimax_h3_config(json, file);
  return {{"num_layers", config.num_layers},
          {"num_refiner_layers", config.num_refiner_layers},
          {kHeadsWidth, config.heads_width()},
          {"attention_head_dim", config.attention_head_dim},
          {"hidden_size", config.hidden_size},
          {kFeedForwardRows, 2 * config.ffn_dim},
          {kPatchElements, config.patch_elements()},
          {"audio_in_channels", config.audio_in_channels},
          {"text_dim", config.text_dim}};
}

/// Derives sizes from the tensors, but not the sizes of the modulation, which pruned files change.
Sizes h3_transformer_sizes(const TensorTable& tensors) {
  if (!tensors.contains("audio_proj_in.weight")) return {};
  TensorSizes sizes(tensors);
  const std::string first = "transformer_blocks.0.";
  sizes.add(kHeadsWidth, first + "attn.to_q.weight", 0, 2);
  sizes.add("attention_head_dim", first + "attn.norm_q.weight", 0, 1);
  sizes.add("hidden_size", "proj_in.weight", 0, 2);
  sizes.add(kFeedForwardRows, first + "ff.net.0.proj.weight", 0, 2);
  sizes.add(kPatchElements, "proj_in.weight", 1, 2);
  sizes.add("audio_in_channels", "audio_proj_in.weight", 1, 2);
  sizes.add("text_dim", "context_embedder.weight", 1, 2);
  sizes.add_blocks("num_layers", "transformer_blocks.");
  sizes.add_blocks("num_refiner_layers", "token_refiner.refiner_blocks.");
  return sizes.found();
}

NameMap h3_vae_names() {
  const std::string level = "encoder.down_blocks.*.", original = "encoder.down.*.";
  Pairs pairs = {{level + "downsamplers.0", original + "downsample"}, {"decoder.proj_in", "decoder.x_embedder"}};
  for (const auto& [layer, theirs] : Pairs{{"norm1", "norm1"},
                                           {"conv1", "conv1"},
                                           {"norm2", "norm2"},
                                           {"conv2", "conv2"},
                                           {"conv_shortcut", "nin_shortcut"}})
    pairs.emplace_back(level + "resnets.*." + layer, original + "block.*." + theirs);
  const std::string block = "decoder.transformer_blocks.*.";
  // Whole tensor names are paired, because the layer's name alone would also match diffusers' name, which continues
  // with ".0".
  for (const std::string tensor : {".weight", ".bias", ".weight_scale", ".comfy_quant"})
    pairs.emplace_back(block + "attn.to_out.0" + tensor, block + "attn.to_out" + tensor);
  pairs.emplace_back(block + "ff.net.2", block + "ff.w2");
  return NameMap(pairs).with_moved_rows(
      {{.first = block + "ff.net.0.proj", .second = block + "ff.w1", .halves_swapped = true}});
}

Sizes h3_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const MiniMaxH3VaeConfig config = parse_minimax_h3_vae_config(json, file);
  return {{"latent_channels", config.latent_channels},
          {kWidthOfDecoder, config.decoder_width()},
          {"decoder_num_layers", config.decoder_num_layers}};
}

Sizes h3_vae_sizes(const TensorTable& tensors) {
  if (!tensors.contains("decoder.transformer_blocks.0.scale1")) return {};
  TensorSizes sizes(tensors);
  sizes.add("latent_channels", "decoder.proj_in.weight", 1, 2);
  sizes.add(kWidthOfDecoder, "decoder.proj_in.weight", 0, 2);
  sizes.add_blocks("decoder_num_layers", "decoder.transformer_blocks.");
  return sizes.found();
}

Sizes sound_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const MiniMaxH3SoundConfig config = parse_minimax_h3_sound_config(json, file);
  return {{"latent_channels", config.latent_channels},
          {"latent_dim", config.latent_dim},
          {"decoder_dim", config.decoder_dim}};
}

Sizes sound_vae_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add("latent_channels", "dec_in_proj.weight", 1, 3);
  sizes.add("latent_dim", "dec_in_proj.weight", 0, 3);
  sizes.add("decoder_dim", "decoder.conv_pre.bias", 0, 1);
  return sizes.found().size() == 3 ? sizes.found() : Sizes{};
}

}  // namespace

Part minimax_h3_transformer_part() {
  return {.role = "transformer",
          .classes = {"MiniMaxH3Transformer3DModel"},
          .names = {.others = {h3_transformer_names(FusedRows::by_kind), h3_transformer_names(FusedRows::by_head)},
                    .choose = choose_transformer_names,
                    .prefixes = transformer_prefixes(),
                    .no_weights = {"rope.inv_freq"}},
          .sizes_by_config = h3_transformer_sizes,
          .sizes_by_tensors = h3_transformer_sizes,
          .published = "minimax_h3_fl2va_bf16.safetensors, minimax_h3_fl2va_pruned_int8_convrot.safetensors or a GGUF"};
}

Part minimax_h3_vae_part() {
  return {.role = "vae",
          .classes = {"AutoencoderKLMiniMaxH3"},
          .names = {.others = {h3_vae_names()},
                    .prefixes = {"video_vae.", "model."},
                    .no_weights = {"decoder.mask_token", "latents_mean", "latents_std"}},
          .sizes_by_config = h3_vae_sizes,
          .sizes_by_tensors = h3_vae_sizes,
          .published = "minimax_h3_video_vae_fp16.safetensors"};
}

Part minimax_h3_sound_vae_part() {
  return {.role = "audio_vae",
          .classes = {"AutoencoderKLMiniMaxH3Audio"},
          .names = {.prefixes = {"model."}, .no_weights = {"latents_mean", "latents_std"}},
          .sizes_by_config = sound_vae_sizes,
          .sizes_by_tensors = sound_vae_sizes,
          .published = "minimax_h3_audio_vae_fp32.safetensors"};
}

LoraNames minimax_h3_lora_names() {
  return {.blocks = "transformer_blocks.",
          // A LoRA's inner width is read from the input of the first layer, so "attn.to_out.0" comes first: its input
          // is as wide as all heads together. The inputs of q, k and v have another width.
          .layers = {"attn.to_out.0", "attn.to_q", "attn.to_k", "attn.to_v", "ff.net.0.proj", "ff.net.2",
                     "adaln_proj.linear"},
          .other_blocks = "blocks.",
          .pruned = {"adaln_proj.linear", "norm_out.linear"},
          .names_with_adapter = kByHead};
}

}  // namespace sparsereel::models
