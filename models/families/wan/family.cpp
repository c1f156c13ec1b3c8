// Describes a Wan checkpoint before its weights are read.
#include "models/families/wan/family.h"

#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/families/wan/config.h"
#include "models/families/wan/vae_config.h"
#include "models/files/config_fields.h"
#include "models/image/clip_config.h"
#include "models/image/clip_names.h"
#include "models/samplers/flow_config.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/t5_names.h"

namespace sparsereel::models {
namespace {

// Defaults of diffusers' pipeline; the text length is that of all published models.
constexpr int64_t kWanSteps = 50, kTextLength = 512;
constexpr double kWanGuidance = 5;

// For image to video with version 2.1, the authors use this shift for frames larger than 832 x 480, and the
// checkpoint's shift of 3 for others.
constexpr double kShiftOfLargeImages = 5;

constexpr const char *kSecond = "transformer_2", *kImageEncoder = "image_encoder";

[[noreturn]] void refuse(
    const Checkpoint& checkpoint, const std::string& cause,
    const char* remedy =
        "a model of two transformers has boundary_ratio and transformer_2, other models have neither") {
  throw bad_file(checkpoint.index_file(), cause, remedy);
}

/// Checks expand_timesteps, which only the small model of version 2.2 sets; that model has its own VAE. If
/// expand_timesteps is true and the video begins with an image, the image's tokens have timestep 0. Text to video does
/// not depend on this setting.
void check_expand_timesteps(const Checkpoint& checkpoint, const WanVaeConfig& vae) {
  const nlohmann::json expand = checkpoint.setting("expand_timesteps");
  if (!expand.is_null() && !expand.is_boolean())
    refuse(checkpoint, "expand_timesteps is " + expand.dump(), "write true or false, or download the file again");
  if (expand == true && !vae.is_residual)
    refuse(
        checkpoint,
        "expand_timesteps is true, but is_residual of the vae is false: Wan 2.2 5B has the first, Wan 2.1 the second",
        "use the transformer and the vae of one checkpoint");
}

std::vector<ExpertSpec> read_experts(const Checkpoint& checkpoint) {
  const nlohmann::json boundary = checkpoint.setting("boundary_ratio");
  const bool second = std::ranges::count(checkpoint.roles(), kSecond) > 0;
  if (boundary.is_null() && second) refuse(checkpoint, "transformer_2 is given, but boundary_ratio is missing");
  if (boundary.is_null()) return {ExpertSpec{}};
  if (!second) refuse(checkpoint, "boundary_ratio is " + boundary.dump() + ", but transformer_2 is missing");
  if (!boundary.is_number() || boundary.get<double>() <= 0 || boundary.get<double>() >= 1)
    refuse(checkpoint, "boundary_ratio is " + boundary.dump() + ", which is not a number between 0 and 1");
  return {{.role = "transformer", .name = "high", .from_share = boundary.get<double>()},
          {.role = kSecond, .name = "low"}};
}

/// Throws Error unless both experts take the same latents, text and positions.
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
  if (first.attends_to_images() || second.attends_to_images())
    throw bad_file(first.attends_to_images() ? file : second_file,
                   "image_dim is given, but models of two transformers attend to no images",
                   "use components of one checkpoint");
}

/// Derives the use of images from the transformer's in_channels: the noise's channels alone, or also channels for a
/// mask of given frames and for images' latents.
ImageSpec read_images(const Checkpoint& checkpoint, const WanConfig& config, const WanVaeConfig& vae,
                      const std::string& file) {
  using Latents = ImageSpec::Latents;
  if (config.in_channels == vae.z_dim && !config.attends_to_images())
    return {.latents = checkpoint.setting("expand_timesteps") == true ? Latents::first_frame_stays : Latents::none};
  const int64_t images = vae.frames_a_latent() + vae.z_dim;
  if (config.in_channels != vae.z_dim + images)
    throw bad_file(file,
                   "in_channels " + std::to_string(config.in_channels) + " is neither " + std::to_string(vae.z_dim) +
                       ", which is z_dim of the vae, nor " + std::to_string(vae.z_dim + images) +
                       ", which includes the " + std::to_string(images) + " channels of images",
                   "use components of one checkpoint");
  return {.latents = Latents::beside_noise,
          .needed = true,
          .takes_last = config.pos_embed_seq_len || !config.attends_to_images(),
          .needs_last = config.pos_embed_seq_len.has_value(),
          .encodes_video = true,
          .tells_frames = true,
          .has_context = config.attends_to_images()};
}

/// Throws Error unless the checkpoint has the image encoder that the transformer needs.
void check_image_encoder(const Checkpoint& checkpoint, const WanConfig& config) {
  if (!config.attends_to_images()) return;
  if (std::ranges::count(checkpoint.roles(), kImageEncoder) == 0)
    refuse(checkpoint,
           "image_encoder is missing, but image_dim of the transformer is " + std::to_string(*config.image_dim),
           "use all components of the checkpoint");
  std::string encoder_file;
  const nlohmann::json json = checkpoint.config(kImageEncoder, &encoder_file);
  const ClipVisionConfig encoder = parse_clip_vision_config(json, encoder_file);
  check_fits(encoder_file, "hidden_size", encoder.hidden_size, "image_dim", *config.image_dim);
  if (config.pos_embed_seq_len)
    check_fits(encoder_file, "two images' tokens", 2 * encoder.tokens(), "pos_embed_seq_len",
               *config.pos_embed_seq_len);
}

std::string variant_of(const ModelSpec& spec, const WanVaeConfig& vae) {
  const char* task = !spec.image.needed      ? ""
                     : spec.image.needs_last ? ", first and last frame to video"
                                             : ", image to video";
  if (spec.experts.size() > 1) return std::string("2.2 layout (two experts)") + task;
  return (vae.is_residual ? "2.2 layout (latents of 16 x 16 pixels)" : "2.1 layout") + std::string(task);
}

/// Returns the default size, which depends on the VAE, and the defaults that depend on the task.
Defaults defaults_of(const ModelSpec& spec, const WanVaeConfig& vae) {
  Defaults defaults = vae.is_residual ? Defaults{.width = 1280, .height = 704, .frames = 121, .fps = 24}
                                      : Defaults{.width = 832, .height = 480, .frames = 81, .fps = 16};
  defaults.steps = kWanSteps;
  defaults.guidance = kWanGuidance;
  if (spec.image.has_context && !spec.image.needs_last)
    defaults.shift_above = AreaShift{.pixels = defaults.width * defaults.height, .shift = kShiftOfLargeImages};
  return defaults;
}

ModelSpec describe_wan(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const WanConfig config = parse_wan_config(transformer, file);
  const WanVaeConfig vae = parse_wan_vae_config(vae_json, vae_file);
  check_text_encoder(checkpoint, "umt5", "text_dim", config.text_dim);
  check_fits(vae_file, "z_dim", vae.z_dim, "out_channels", config.out_channels);
  check_image_encoder(checkpoint, config);
  ModelSpec spec;
  check_expand_timesteps(checkpoint, vae);
  spec.experts = read_experts(checkpoint);
  if (spec.experts.size() > 1) check_second(checkpoint, config, file);
  spec.image = read_images(checkpoint, config, vae, file);
  spec.variant = variant_of(spec, vae);
  spec.fingerprint = {{"boundary_ratio", checkpoint.setting("boundary_ratio").dump()},
                      {"in_channels", std::to_string(config.in_channels)},
                      {"image_dim", mark_of(config.image_dim)},
                      {"pos_embed_seq_len", mark_of(config.pos_embed_seq_len)}};
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = vae.z_dim;
  spec.text_length = kTextLength;
  spec.joint_text = false;
  spec.patch = config.patch_size;
  spec.stride = {vae.frames_a_latent(), vae.pixels_a_latent(), vae.pixels_a_latent()};
  spec.layout = LatentLayout::channels_first;
  spec.noise = spec.latents = Precision::fp32;
  spec.defaults = defaults_of(spec, vae);
  return spec;
}

}  // namespace

Family wan_family() {
  return {
      .pipeline_class = "WanPipeline",
      .name = "Wan",
      .other_classes = {"WanImageToVideoPipeline", "WanDMDPipeline"},
      .parts = {{"scheduler", {"UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler", "FlowMatchLCMScheduler"}},
                umt5_part(),
                umt5_tokenizer_part(),
                wan_transformer_part(),
                wan_transformer_part(kSecond, /*optional=*/true),
                clip_vision_part(),
                clip_processor_part(),
                wan_vae_part()},
      .settings = {"boundary_ratio", "expand_timesteps"},
      .fingerprint = {"boundary_ratio", "in_channels", "image_dim", "pos_embed_seq_len"},
      .prompt = {.cleaned = true, .encodes_padding = false},
      .lora = {.blocks = "blocks.",
               .layers = {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "attn2.to_k",
                          "attn2.to_v", "attn2.to_out.0", "attn2.add_k_proj", "attn2.add_v_proj", "ffn.net.0.proj",
                          "ffn.net.2"}},
      .samplers = {{.name = "unipc",
                    .class_name = "UniPCMultistepScheduler",
                    .kind = SamplerKind::unipc,
                    .parse = parse_unipc_config},
                   {.name = "dpm++",
                    .class_name = "DPMSolverMultistepScheduler",
                    .kind = SamplerKind::flow_dpm_solver,
                    .parse = parse_flow_dpm_config},
                   {.name = "euler",
                    .class_name = "FlowMatchEulerDiscreteScheduler",
                    .kind = SamplerKind::flow_euler,
                    .parse = parse_flow_euler_config},
                   {.name = "lcm",
                    .class_name = "FlowMatchLCMScheduler",
                    .kind = SamplerKind::flow_lcm,
                    .parse = parse_flow_lcm_config}},
      .describe = describe_wan};
}

}  // namespace sparsereel::models
