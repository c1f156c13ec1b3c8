// What there is to know of a Wan checkpoint before its weights are read.
#include "models/families/wan/family.h"

#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/checkpoint/checkpoint.h"
#include "models/families/wan/config.h"
#include "models/families/wan/vae_config.h"
#include "models/files/config_fields.h"
#include "models/samplers/flow_config.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/t5_names.h"

namespace sparsereel::models {
namespace {

// Those of the pipeline in diffusers; 512 tokens are what every published model was trained with.
constexpr int64_t kWanSteps = 50, kTextLength = 512;
constexpr double kWanGuidance = 5;

constexpr const char* kSecond = "transformer_2";

[[noreturn]] void refuse(
    const Checkpoint& checkpoint, const std::string& cause,
    const char* remedy = "a model of two experts has boundary_ratio and transformer_2, all others neither") {
  throw bad_file(checkpoint.index_file(), cause, remedy);
}

/// Version 2.2's small model alone has it, with a VAE of its own. Text to video has one timestep with it as without.
void check_expand_timesteps(const Checkpoint& checkpoint, const WanVaeConfig& vae) {
  const nlohmann::json expand = checkpoint.setting("expand_timesteps");
  if (!expand.is_null() && !expand.is_boolean())
    refuse(checkpoint, "expand_timesteps is " + expand.dump(), "write true or false, or download the file again");
  if (expand == true && !vae.is_residual)
    refuse(checkpoint, "expand_timesteps is true, but is_residual of the vae is false, as version 2.1 has it",
           "use components of one checkpoint");
}

std::vector<ExpertSpec> read_experts(const Checkpoint& checkpoint) {
  const nlohmann::json boundary = checkpoint.setting("boundary_ratio");
  const bool second = std::ranges::count(checkpoint.roles(), kSecond) > 0;
  if (boundary.is_null() && second) refuse(checkpoint, "transformer_2 is there, but boundary_ratio is missing");
  if (boundary.is_null()) return {ExpertSpec{}};
  if (!second) refuse(checkpoint, "boundary_ratio is " + boundary.dump() + ", but transformer_2 is missing");
  if (!boundary.is_number() || boundary.get<double>() <= 0 || boundary.get<double>() >= 1)
    refuse(checkpoint, "boundary_ratio is " + boundary.dump() + ", which is no number between 0 and 1");
  return {{.role = "transformer", .name = "high", .from_share = boundary.get<double>()},
          {.role = kSecond, .name = "low"}};
}

/// Both experts take the same latents, text and positions.
void check_second(const Checkpoint& checkpoint, const WanConfig& first, const std::string& file) {
  std::string second_file;
  const nlohmann::json config = checkpoint.config(kSecond, &second_file);
  const WanConfig second = parse_wan_config(config, second_file);
  check_fits(second_file, "num_layers", second.num_layers, file + ": num_layers", first.num_layers);
  check_fits(second_file, "num_attention_heads", second.num_attention_heads, file + ": num_attention_heads",
             first.num_attention_heads);
  check_fits(second_file, "attention_head_dim", second.attention_head_dim, file + ": attention_head_dim",
             first.attention_head_dim);
  check_fits(second_file, "in_channels", second.in_channels, file + ": in_channels", first.in_channels);
}

std::string variant_of(const ModelSpec& spec, const WanVaeConfig& vae) {
  if (spec.experts.size() > 1) return "2.2 layout (two experts)";
  return vae.is_residual ? "2.2 layout (latents of 16 x 16 pixels)" : "2.1 layout";
}

ModelSpec describe_wan(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const WanConfig config = parse_wan_config(transformer, file);
  const WanVaeConfig vae = parse_wan_vae_config(vae_json, vae_file);
  check_text_encoder(checkpoint, "umt5", "text_dim", config.text_dim);
  check_fits(vae_file, "z_dim", vae.z_dim, "in_channels", config.in_channels);
  check_fits(file, "out_channels", config.out_channels, "in_channels", config.in_channels);
  ModelSpec spec;
  check_expand_timesteps(checkpoint, vae);
  spec.experts = read_experts(checkpoint);
  if (spec.experts.size() > 1) check_second(checkpoint, config, file);
  spec.variant = variant_of(spec, vae);
  spec.marks = {{"boundary_ratio", checkpoint.setting("boundary_ratio").dump()}};
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.in_channels;
  spec.text_length = kTextLength;
  spec.joint_text = false;
  spec.patch = config.patch_size;
  spec.stride = {vae.frames_a_latent(), vae.pixels_a_latent(), vae.pixels_a_latent()};
  spec.layout = LatentLayout::channels_first;
  spec.noise = spec.latents = Precision::fp32;
  // The sizes that each VAE's models were made for.
  spec.defaults = vae.is_residual ? Defaults{.width = 1280, .height = 704, .frames = 121, .fps = 24}
                                  : Defaults{.width = 832, .height = 480, .frames = 81, .fps = 16};
  spec.defaults.steps = kWanSteps;
  spec.defaults.guidance = kWanGuidance;
  return spec;
}

}  // namespace

Family wan_family() {
  const auto transformer = [](const char* role, bool optional) {
    return Part{.role = role,
                .classes = {"WanTransformer3DModel"},
                .optional = optional,
                .names = wan_transformer_names(),
                .sizes_by_config = wan_sizes,
                .sizes_by_tensors = wan_sizes,
                .other_model = wan_other_model};
  };
  return {.pipeline_class = "WanPipeline",
          .name = "Wan",
          .parts = {{"scheduler", {"UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler"}},
                    umt5_part(),
                    umt5_tokenizer_part(),
                    transformer("transformer", /*optional=*/false),
                    transformer(kSecond, /*optional=*/true),
                    {.role = "vae",
                     .classes = {"AutoencoderKLWan"},
                     .names = wan_vae_names(),
                     .sizes_by_config = wan_vae_sizes,
                     .sizes_by_tensors = wan_vae_sizes}},
          .settings = {"boundary_ratio", "expand_timesteps"},
          .marks = {"boundary_ratio"},
          .prompt = {.cleaned = true, .encodes_padding = false},
          .lora = {.blocks = "blocks.",
                   .layers = {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "attn2.to_k",
                              "attn2.to_v", "attn2.to_out.0", "ffn.net.0.proj", "ffn.net.2"}},
          .samplers = {{.name = "unipc",
                        .class_name = "UniPCMultistepScheduler",
                        .kind = SamplerKind::unipc,
                        .parse = parse_unipc_config},
                       {.name = "euler",
                        .class_name = "FlowMatchEulerDiscreteScheduler",
                        .kind = SamplerKind::flow_euler,
                        .parse = parse_flow_euler_config}},
          .describe = describe_wan};
}

}  // namespace sparsereel::models
