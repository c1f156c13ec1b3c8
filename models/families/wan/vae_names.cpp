// Pairs diffusers' names of layers in Wan's two VAEs with the authors' names. Also derives sizes from tensors. The
// numbers in names are those of the published VAEs, with two residual blocks per level (three in the decoder).
#include "models/families/wan/family.h"
#include "models/families/wan/vae_config.h"
#include "models/store/checkpoint/tensor_sizes.h"

namespace sparsereel::models {
namespace {

using Pairs = NameMap::Pairs;

constexpr const char* kDecoderWidth = "decoder_base_dim x dim_mult";

void add_residual_block(Pairs& pairs, const std::string& ours, const std::string& theirs) {
  for (const auto& [layer, original] : Pairs{{".norm1", ".residual.0"},
                                             {".conv1", ".residual.2"},
                                             {".norm2", ".residual.3"},
                                             {".conv2", ".residual.6"},
                                             {".conv_shortcut", ".shortcut"}})
    pairs.emplace_back(ours + layer, theirs + original);
}

void add_resampling(Pairs& pairs, const std::string& ours, const std::string& theirs) {
  for (const char* layer : {".resample", ".time_conv"}) pairs.emplace_back(ours + layer, theirs + layer);
}

/// Returns the names of the layers that both VAEs have.
Pairs ends() {
  Pairs pairs = {{"quant_conv", "conv1"}, {"post_quant_conv", "conv2"}};
  for (const std::string side : {"encoder.", "decoder."}) {
    add_residual_block(pairs, side + "mid_block.resnets.0", side + "middle.0");
    add_residual_block(pairs, side + "mid_block.resnets.1", side + "middle.2");
    for (const auto& [layer, original] : Pairs{{"conv_in", "conv1"},
                                               {"mid_block.attentions.0", "middle.1"},
                                               {"norm_out", "head.0"},
                                               {"conv_out", "head.2"}})
      pairs.emplace_back(side + layer, side + original);
  }
  return pairs;
}

/// Returns the names of 2.1's VAE. The authors number the layers of all levels in one sequence.
NameMap names_of_2_1() {
  constexpr int kLevels = 4, kResiduals = 3;
  Pairs pairs = ends();
  for (int level = 0; level < kLevels; ++level) {
    const std::string block = "decoder.up_blocks." + std::to_string(level);
    const auto original = [&](int layer) {
      return "decoder.upsamples." + std::to_string(level * (kResiduals + 1) + layer);
    };
    for (int i = 0; i < kResiduals; ++i)
      add_residual_block(pairs, block + ".resnets." + std::to_string(i), original(i));
    if (level + 1 < kLevels) add_resampling(pairs, block + ".upsamplers.0", original(kResiduals));
  }
  add_residual_block(pairs, "encoder.down_blocks.*", "encoder.downsamples.*");
  add_resampling(pairs, "encoder.down_blocks.*", "encoder.downsamples.*");
  return pairs;
}

NameMap names_of_2_2() {
  Pairs pairs = ends();
  add_residual_block(pairs, "decoder.up_blocks.*.resnets.*", "decoder.upsamples.*.upsamples.*");
  add_resampling(pairs, "decoder.up_blocks.*.upsampler", "decoder.upsamples.*.upsamples.3");
  add_residual_block(pairs, "encoder.down_blocks.*.resnets.*", "encoder.downsamples.*.downsamples.*");
  add_resampling(pairs, "encoder.down_blocks.*.downsampler", "encoder.downsamples.*.downsamples.2");
  return pairs;
}

Sizes wan_vae_sizes(const nlohmann::json& json, const std::string& file) {
  const WanVaeConfig config = parse_wan_vae_config(json, file);
  return {{"z_dim", config.z_dim},
          {kDecoderWidth, config.decoder_base_dim * config.dim_mult.back()},
          {"out_channels", config.out_channels}};
}

Sizes wan_vae_sizes(const TensorTable& tensors) {
  if (!tensors.contains("decoder.norm_out.gamma")) return {};
  TensorSizes sizes(tensors);
  sizes.add("z_dim", "decoder.conv_in.weight", 1, 5);
  sizes.add(kDecoderWidth, "decoder.conv_in.weight", 0, 5);
  sizes.add("out_channels", "decoder.conv_out.weight", 0, 5);
  return sizes.found();
}

}  // namespace

Part wan_vae_part() {
  return {.role = "vae",
          .classes = {"AutoencoderKLWan"},
          .names = {.others = {names_of_2_1(), names_of_2_2()}, .prefixes = {"model."}},
          .sizes_by_config = wan_vae_sizes,
          .sizes_by_tensors = wan_vae_sizes};
}

}  // namespace sparsereel::models
