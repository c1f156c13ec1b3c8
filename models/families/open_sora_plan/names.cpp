// Derives sizes of Open-Sora-Plan's transformer and VAE from their configs and tensors.
#include "models/families/open_sora_plan/config.h"
#include "models/families/open_sora_plan/family.h"
#include "models/families/open_sora_plan/vae_config.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

constexpr const char *kInner = "num_attention_heads x attention_head_dim", *kWidest = "hidden_size x hidden_size_mult";

Sizes open_sora_plan_sizes(const nlohmann::json& json, const std::string& file) {
  const OpenSoraPlanConfig config = parse_open_sora_plan_config(json, file);
  return {{"num_layers", config.num_layers},
          {kInner, config.width()},
          {"in_channels", config.in_channels},
          {"caption_channels", config.caption_channels}};
}

Sizes open_sora_plan_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add(kInner, "adaln_single.linear.weight", 1, 2);
  sizes.add("in_channels", "pos_embed.proj.weight", 1, 4);
  sizes.add("caption_channels", "caption_projection.linear_1.weight", 1, 2);
  sizes.add_blocks("num_layers", "transformer_blocks.");
  return sizes.found().contains(kInner) && sizes.found().contains("caption_channels") ? sizes.found() : Sizes{};
}

Sizes open_sora_plan_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const OpenSoraPlanVaeConfig config = parse_open_sora_plan_vae_config(json, file);
  return {{"z_channels", config.z_channels}, {kWidest, config.hidden_size * config.hidden_size_mult.back()}};
}

Sizes open_sora_plan_vae_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  sizes.add(kWidest, "decoder.mid.attn_1.q.conv.weight", 0, 5);
  if (sizes.found().empty()) return {};
  sizes.add("z_channels", "decoder.conv_in.conv.weight", 1, 5);
  return sizes.found();
}

}  // namespace

Part open_sora_plan_transformer_part() {
  return {.role = "transformer",
          .classes = {"OpenSoraT2V"},
          .names = {.prefixes = transformer_prefixes()},
          .sizes_by_config = open_sora_plan_sizes,
          .sizes_by_tensors = open_sora_plan_sizes};
}

Part open_sora_plan_vae_part() {
  return {.role = "vae",
          .classes = {"CausalVAEModel"},
          .names = {.prefixes = {"model."}},
          .sizes_by_config = open_sora_plan_vae_sizes,
          .sizes_by_tensors = open_sora_plan_vae_sizes};
}

}  // namespace sparsereel::models
