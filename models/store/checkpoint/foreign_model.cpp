// The table of foreign models, and its search.
#include "models/store/checkpoint/foreign_model.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {
namespace {

/// A piece of a tensor's name. If `size` is not 0, that tensor must also have this size along `axis`.
struct Sign {
  std::string_view name = {};
  size_t axis = 0;
  int64_t size = 0;  // 0 for any size
};

/// A kind of file. A file is of this kind if it has all signs.
struct Row {
  const char* what;
  std::array<Sign, 3> signs;
};

/// The first row that fits wins. So a model with special names comes before the models whose names it also has. VAEs
/// and text encoders come last, because the file of a whole pipeline holds them too. Names are those of ComfyUI,
/// diffusers and the models' authors.
constexpr Row kModels[] = {
    {"a ControlNet", {{{"controlnet_cond_embedding."}}}},
    {"a ControlNet", {{{"control_model."}}}},
    {"a ControlNet", {{{"controlnet_x_embedder."}}}},
    {"a ControlNet", {{{"controlnet_blocks.0."}}}},
    {"an IP-Adapter", {{{"to_k_ip.weight"}}}},
    {"an AnimateDiff motion module", {{{"motion_modules.0.temporal_transformer."}}}},
    {"a Stable Video Diffusion checkpoint", {{{"input_blocks."}, {"time_stack."}}}},
    {"a Stable Video Diffusion checkpoint", {{{"down_blocks."}, {"temporal_transformer_blocks."}}}},
    {"an SDXL refiner checkpoint", {{{"input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 1, 1280}}}},
    {"an SDXL checkpoint", {{{"input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 1, 2048}}}},
    {"an SDXL checkpoint", {{{"down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight", 1, 2048}}}},
    {"an SDXL checkpoint", {{{"conditioner.embedders.1.model.transformer.resblocks."}}}},
    {"an SD 2 checkpoint", {{{"input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 1, 1024}}}},
    {"an SD 2 checkpoint", {{{"down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight", 1, 1024}}}},
    {"an SD 1.5 checkpoint", {{{"input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", 1, 768}}}},
    {"an SD 1.5 checkpoint", {{{"down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight", 1, 768}}}},
    {"a checkpoint of a Stable Diffusion UNet", {{{"input_blocks.0.0.weight"}}}},
    {"an SD 3 checkpoint", {{{"joint_blocks.0.context_block."}}}},
    {"an SD 3 checkpoint",
     {{{"transformer_blocks.0.norm1_context."}, {"pos_embed.proj.weight"}, {"context_embedder.weight"}}}},
    {"a Flux.2 checkpoint", {{{"double_stream_modulation_img."}}}},
    {"a Chroma checkpoint", {{{"distilled_guidance_layer."}}}},
    {"a HunyuanVideo 1.5 checkpoint", {{{"txt_in.individual_token_refiner."}, {"cond_type_embedding."}}}},
    {"a HunyuanVideo checkpoint", {{{"txt_in.individual_token_refiner."}}}},
    {"a HunyuanVideo checkpoint", {{{"context_embedder.token_refiner."}}}},
    {"a Flux checkpoint", {{{"double_blocks.0.img_attn."}}}},
    {"a Flux checkpoint",
     {{{"single_transformer_blocks.0.attn."}, {"context_embedder.weight"}, {"x_embedder.weight"}}}},
    {"a Qwen-Image checkpoint", {{{"transformer_blocks.0.img_mod.1.weight"}}}},
    {"a Qwen-Image checkpoint", {{{"txt_in.text_norm.weight"}}}},
    {"an LTX-2 checkpoint", {{{"av_ca_a2v_gate_adaln_single."}}}},
    {"an LTX-Video checkpoint", {{{"patchify_proj.weight"}, {"transformer_blocks.0.attn2.to_q."}}}},
    {"an LTX-Video checkpoint",
     {{{"time_embed.emb.timestep_embedder."}, {"proj_in.weight"}, {"transformer_blocks.0.attn2.to_q."}}}},
    {"a Z-Image checkpoint", {{{"cap_embedder.1.weight", 0, 3840}}}},
    {"a Lumina 2 checkpoint", {{{"cap_embedder.1.weight"}, {"noise_refiner.0."}}}},
    {"a HiDream checkpoint", {{{"double_stream_blocks.0.block."}}}},
    {"a Cosmos checkpoint", {{{"blocks.block0.blocks.0.block."}}}},
    {"a Cosmos checkpoint", {{{"x_embedder.proj.1.weight"}, {"blocks.0.self_attn.q_proj."}}}},
    {"an AuraFlow checkpoint", {{{"double_layers.0.attn.w1q."}}}},
    {"a Stable Cascade checkpoint", {{{"clip_txt_mapper.weight"}}}},
    {"a Stable Cascade checkpoint", {{{"down_blocks.1.0.channelwise.0.weight"}}}},
    {"a Hunyuan-DiT checkpoint", {{{"mlp_t5.0.weight"}}}},
    {"a Sana checkpoint", {{{"blocks.0.cross_attn.q_linear."}, {"attention_y_norm."}}}},
    {"a PixArt checkpoint", {{{"blocks.0.cross_attn.q_linear."}, {"t_block.1."}}}},
    {"a PixArt checkpoint", {{{"adaln_single.linear."}, {"transformer_blocks.0.attn1.to_q.weight", 0, 1152}}}},
    {"a Kandinsky 5 checkpoint", {{{"visual_transformer_blocks.0."}}}},
    {"an OmniGen2 checkpoint", {{{"time_caption_embed."}}}},
    {"an ACE-Step checkpoint", {{{"genre_embedder.weight"}}}},
    {"an LTX-Video VAE", {{{"decoder.up_blocks.0.res_blocks.0.conv1.conv."}}}},
    {"a HunyuanVideo VAE", {{{"decoder.mid.block_1.conv1.conv."}}}},
    {"a HunyuanVideo VAE", {{{"decoder.mid_block.attentions.0."}, {"decoder.conv_in.conv."}}}},
    {"a DC-AE, the VAE of Sana", {{{"decoder.stages.1.op_list.0."}}}},
    {"a VAE of SD 1, SD 2 or SDXL", {{{"decoder.conv_in.weight", 1, 4}, {"decoder.conv_norm_out."}}}},
    {"a VAE of SD 1, SD 2 or SDXL", {{{"decoder.conv_in.weight", 1, 4}, {"decoder.mid.block_1."}}}},
    {"a VAE of SD 3 or Flux", {{{"decoder.conv_in.weight", 1, 16}, {"decoder.conv_norm_out."}}}},
    {"a VAE of SD 3 or Flux", {{{"decoder.conv_in.weight", 1, 16}, {"decoder.mid.block_1."}}}},
    {"a VAE of Flux.2", {{{"decoder.conv_in.weight", 1, 32}}}},
    {"a small VAE for previews", {{{"decoder.1.weight"}, {"decoder.3.conv.0.weight"}}}},
    {"a SigLIP image encoder", {{{"vision_model.head.probe"}}}},
    {"a CLIP image encoder", {{{"vision_model.encoder.layers.0."}}}},
    {"a CLIP-L text encoder", {{{"text_model.encoder.layers.0.self_attn.q_proj.weight", 0, 768}}}},
    {"a CLIP-G text encoder", {{{"text_model.encoder.layers.0.self_attn.q_proj.weight", 0, 1280}}}},
    {"a CLIP text encoder", {{{"text_model.encoder.layers.0."}}}},
    {"an OpenCLIP encoder", {{{"transformer.resblocks.0.attn.in_proj_weight"}}}},
    {"a t5 text encoder of other sizes", {{{"encoder.block.0.layer.0.SelfAttention.q.weight"}}}},
    {"a t5 text encoder of other sizes", {{{"enc.blk.0.attn_q.weight"}}}},
    {"a language model that sees images", {{{"visual.blocks.0."}, {"layers.0.self_attn.q_proj."}}}},
    {"a language model", {{{"layers.0.self_attn.q_proj.weight"}}}},
    {"a language model", {{{"blk.0.attn_q.weight"}}}},
    {"a language model", {{{"blk.0.attn_qkv.weight"}}}},
    {"an upscaler of images", {{{".rdb1.conv1.weight"}}}},
    {"an upscaler of images", {{{".RDB1.conv1.0.weight"}}}},
    {"a textual inversion", {{{"emb_params"}}}},
};

/// LoRAs. Underscores replace dots in a tensor's name before it is searched, because kohya writes names so.
constexpr Row kLoras[] = {
    {"an AnimateDiff LoRA", {{{"motion_modules_"}}}},
    {"a Flux.2 LoRA", {{{"double_stream_modulation"}}}},
    {"a Flux.2 LoRA", {{{"attn_to_qkv_mlp_proj"}}}},
    {"a Chroma LoRA", {{{"distilled_guidance_layer"}}}},
    {"a HunyuanVideo LoRA", {{{"individual_token_refiner"}}}},
    {"a HunyuanVideo LoRA", {{{"context_embedder_token_refiner"}}}},
    {"a HunyuanVideo LoRA", {{{"double_blocks_19_"}}}},
    {"a HunyuanVideo LoRA", {{{"single_blocks_39_"}}}},
    {"a HunyuanVideo LoRA", {{{"single_transformer_blocks_39_"}}}},
    {"a HiDream LoRA", {{{"double_stream_blocks_"}}}},
    {"a Flux LoRA", {{{"double_blocks_"}, {"img_attn"}}}},
    {"a Flux LoRA", {{{"single_blocks_"}}}},
    {"a Flux LoRA", {{{"single_transformer_blocks_"}}}},
    {"a Qwen-Image LoRA", {{{"transformer_blocks_0_img_m"}}}},
    {"a Qwen-Image LoRA", {{{"transformer_blocks_59_attn_"}}}},
    {"an SD 3 LoRA", {{{"joint_blocks_"}}}},
    {"an SD 3 LoRA", {{{"transformer_blocks_0_attn_to_q", 1, 1536}}}},
    {"an SD 3 LoRA", {{{"transformer_blocks_0_attn_to_q", 1, 2432}}}},
    {"an SDXL LoRA", {{{"lora_te2_"}}}},
    {"an SDXL LoRA", {{{"input_blocks_"}, {"attn2_to_k", 1, 2048}}}},
    {"an SDXL LoRA", {{{"down_blocks_"}, {"attn2_to_k", 1, 2048}}}},
    {"an SDXL LoRA", {{{"input_blocks_4_1_transformer_blocks_1_"}}}},
    {"an SDXL LoRA", {{{"down_blocks_1_attentions_0_transformer_blocks_1_"}}}},
    {"an SD 2 LoRA", {{{"down_blocks_"}, {"attn2_to_k", 1, 1024}}}},
    {"an SD 1.5 LoRA", {{{"down_blocks_"}, {"attn2_to_k", 1, 768}}}},
    {"an SD 1.5 LoRA", {{{"input_blocks_"}, {"attn2_to_k", 1, 768}}}},
    {"a LoRA of a Stable Diffusion UNet", {{{"down_blocks_"}, {"attentions_"}}}},
    {"a LoRA of a Stable Diffusion UNet", {{{"mid_block_attentions_"}}}},
    {"an LTX-Video LoRA", {{{"transformer_blocks_0_attn2_to_q", 1, 2048}}}},
    {"an LTX-Video LoRA", {{{"transformer_blocks_0_attn2_to_q", 1, 4096}}}},
    {"a PixArt LoRA", {{{"transformer_blocks_0_attn2_to_q", 1, 1152}}}},
    {"a Z-Image LoRA", {{{"layers_0_attention_", 1, 3840}}}},
    {"a Lumina 2 LoRA", {{{"layers_0_attention_", 1, 2304}}}},
    {"a Kandinsky 5 LoRA", {{{"visual_transformer_blocks_"}}}},
    {"a LoRA of a CLIP text encoder", {{{"text_model_encoder_layers_"}}}},
    {"a LoRA of a language model", {{{"layers_0_self_attn_q_proj"}}}},
};

struct Named {
  std::string name;
  const TensorEntry* entry;
};

bool has(const std::vector<Named>& tensors, const Sign& sign) {
  return std::ranges::any_of(tensors, [&](const Named& tensor) {
    const std::vector<int64_t>& shape = tensor.entry->shape;
    return tensor.name.find(sign.name) != std::string::npos &&
           (sign.size == 0 || (sign.axis < shape.size() && shape[sign.axis] == sign.size));
  });
}

std::string first_that_fits(const std::vector<Named>& tensors, std::span<const Row> rows) {
  const auto fits = [&](const Row& row) {
    return std::ranges::all_of(row.signs, [&](const Sign& sign) { return sign.name.empty() || has(tensors, sign); });
  };
  const auto found = std::ranges::find_if(rows, fits);
  return found == rows.end() ? "" : found->what;
}

std::string told_by_names(const StoredWeights& weights) {
  std::vector<Named> tensors;
  for (const auto& [name, place] : weights.tensors) tensors.push_back({name, place.second});
  if (!is_lora(weights.tensors)) return first_that_fits(tensors, kModels);
  for (Named& tensor : tensors) std::ranges::replace(tensor.name, '.', '_');
  return first_that_fits(tensors, kLoras);
}

}  // namespace

std::string foreign_model(const std::filesystem::path& file) {
  try {
    const std::string what = told_by_names(open_weights(file));
    // A file of another model's whole pipeline is foreign, even if it also holds a text encoder that this program
    // supports.
    const std::vector<FoundPart> parts = what.empty() ? std::vector<FoundPart>() : parts_of(file);
    const bool is_ours = std::ranges::count(parts, "transformer", &FoundPart::role) > 0;
    return is_ours || (!parts.empty() && !what.ends_with("checkpoint")) ? "" : what;
  } catch (const Error&) {
    return {};
  }
}

std::string supported_families() {
  std::string text;
  for (size_t i = 0; i < families().size(); ++i)
    text += (i == 0 ? "" : i + 1 == families().size() ? " and " : ", ") + families()[i].name;
  return text;
}

Error or_foreign(const Error& error, const std::filesystem::path& model,
                 const std::map<std::string, std::string>& files) {
  const auto foreign = [](const std::filesystem::path& file, const std::string& role) -> std::string {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return {};
    const std::string what = foreign_model(file);
    if (what.empty()) return {};
    const std::vector<FoundPart> parts = parts_of(file);
    return std::ranges::count(parts, role, &FoundPart::role) > 0 ? "" : what;
  };
  for (const auto& [role, file] : files)
    if (const std::string what = foreign(file, role); !what.empty()) return foreign_file(file, what);
  const std::string what = foreign(model, "transformer");
  return what.empty() ? error : foreign_file(model, what);
}

Error foreign_file(const std::filesystem::path& file, const std::string& what) {
  return bad_file(file, "is " + what + ", which this program does not run",
                  "give a file of " + supported_families() + "; 'sparsereel inspect FILE' says what a file is");
}

}  // namespace sparsereel::models
