// Recognizes CogVideoX's transformers and VAE by their tensors. All programs use diffusers' names.
#include "models/families/cogvideox/config.h"
#include "models/families/cogvideox/family.h"
#include "models/families/cogvideox/vae_config.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

constexpr const char *kInnerWidth = "num_attention_heads x attention_head_dim", *kPatch = "patch_embed.proj.weight";
constexpr const char *kInputs = "in_channels", *kPatchInputs = "in_channels x patch_size_t x patch_size^2",
                     *kOfs = "ofs_embed_dim", *kOfsWeight = "ofs_embedding.linear_1.weight";

Sizes cogvideox_sizes(const nlohmann::json& json, const std::string& file) {
  const CogVideoXConfig config = parse_cogvideox_config(json, file);
  const int64_t area = config.patch_size * config.patch_size;
  Sizes sizes = {
      {kInnerWidth, config.width()}, {"num_layers", config.num_layers}, {"text_embed_dim", config.text_embed_dim}};
  // Patches of one frame are embedded by a convolution, patches of several frames by a matrix. The size of the one that
  // the model does not have is 0.
  sizes[kInputs] = config.patch_size_t ? 0 : config.in_channels;
  sizes[kPatchInputs] = config.patch_size_t ? config.in_channels * *config.patch_size_t * area : 0;
  sizes[kOfs] = config.ofs_embed_dim.value_or(0);
  return sizes;
}

Sizes cogvideox_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add(kInputs, kPatch, 1, 4);
  sizes.add(kPatchInputs, kPatch, 1, 2);
  if (sizes.found().empty()) return {};
  for (const size_t axes : {2, 4}) sizes.add(kInnerWidth, kPatch, 0, axes);
  sizes.add("text_embed_dim", "patch_embed.text_proj.weight", 1, 2);
  sizes.add(kOfs, kOfsWeight, 1, 2);
  sizes.add_blocks("num_layers", "transformer_blocks.");
  Sizes found = sizes.found();
  for (const char* other : {kInputs, kPatchInputs, kOfs}) found.try_emplace(other, 0);
  return found;
}

std::string cogvideox_other_model(const TensorTable& tensors) {
  const Sizes sizes = cogvideox_sizes(tensors);
  const auto is = [&](const char* size, int64_t value) { return !sizes.empty() && sizes.at(size) == value; };
  // The image-to-video model also has 32 input channels, but it has learned positions.
  if (is(kInputs, 32) && !tensors.contains("patch_embed.pos_embedding"))
    return "pose to video (32 input channels, no learned positions)";
  return is(kInputs, 33) ? "Fun (33 input channels)" : "";
}

Sizes cogvideox_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const CogVideoXVaeConfig config = parse_cogvideox_vae_config(json, file);
  return {{"latent_channels", config.latent_channels},
          {"block_out_channels", config.block_out_channels.back()},
          {"out_channels", config.out_channels}};
}

Sizes cogvideox_vae_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add("latent_channels", "decoder.conv_in.conv.weight", 1, 5);
  sizes.add("block_out_channels", "decoder.conv_in.conv.weight", 0, 5);
  sizes.add("out_channels", "decoder.conv_out.conv.weight", 0, 5);
  return sizes.found();
}

}  // namespace

Part cogvideox_transformer_part() {
  return {.role = "transformer",
          .classes = {"CogVideoXTransformer3DModel"},
          .names = {.prefixes = transformer_prefixes()},
          .sizes_by_config = cogvideox_sizes,
          .sizes_by_tensors = cogvideox_sizes,
          .other_model = cogvideox_other_model};
}

Part cogvideox_vae_part() {
  return {.role = "vae",
          .classes = {"AutoencoderKLCogVideoX"},
          .names = {.prefixes = {"model."}},
          .sizes_by_config = cogvideox_vae_sizes,
          .sizes_by_tensors = cogvideox_vae_sizes};
}

}  // namespace sparsereel::models
