// Describes a CogVideoX checkpoint before its weights are read. Missing fields of the scheduler's config take the
// defaults of diffusers' constructors.
#include "models/families/cogvideox/family.h"

#include <nlohmann/json.hpp>

#include "models/families/cogvideox/config.h"
#include "models/families/cogvideox/vae_config.h"
#include "models/files/config_fields.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/t5_names.h"

namespace sparsereel::models {
namespace {

// A checkpoint's files do not contain these defaults; they are those of diffusers' pipeline.
constexpr int64_t kCogVideoXSteps = 50;
constexpr double kCogVideoXGuidance = 6, kFps = 8;

std::string variant_of(const CogVideoXConfig& config) {
  const std::string task = config.takes_image() ? "image to video, " : "";
  if (config.patch_size_t)
    return task + "1.5 layout (rotary positions, patch_size_t " + std::to_string(*config.patch_size_t) + ")";
  if (config.use_learned_positional_embeddings) return task + "5b layout (rotary and learned positions)";
  return task + std::string(config.use_rotary_positional_embeddings ? "5b layout (rotary positions)"
                                                                    : "2b layout (sine-cosine positions)");
}

/// Returns how the model uses images. The first image's latents are input channels after those of the noise. With
/// learned positions the size is fixed, because they exist only for the sample size. A text-to-video model that takes
/// an image because of a LoRA also makes videos without an image.
ImageSpec images_of(const CogVideoXConfig& config, bool by_lora) {
  if (!config.takes_image()) return {};
  return {.latents = ImageSpec::Latents::beside_noise,
          .needed = !by_lora,
          .drawn = true,
          .fixed_size = config.use_learned_positional_embeddings};
}

int64_t take_image(nlohmann::json& json, const std::string& file) {
  const CogVideoXConfig config = parse_cogvideox_config(json, file);
  json["in_channels"] = 2 * config.out_channels;
  return 2 * config.out_channels / config.in_channels;
}

ModelSpec describe_cogvideox(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const CogVideoXConfig config = parse_cogvideox_config(transformer, file);
  const CogVideoXVaeConfig vae = parse_cogvideox_vae_config(vae_json, vae_file);
  check_text_encoder(checkpoint, "t5", "text_embed_dim", config.text_embed_dim);
  check_fits(vae_file, "latent_channels", vae.latent_channels, "out_channels", config.out_channels);
  // If the field is missing, nothing is compared, because diffusers' default may not fit the checkpoint.
  if (transformer.contains("temporal_compression_ratio"))
    check_fits(vae_file, "temporal_compression_ratio", vae.frames_a_latent(), "temporal_compression_ratio",
               config.temporal_compression_ratio);
  const int64_t pixels = vae.pixels_a_latent(), side = config.patch_size;
  ModelSpec spec;
  spec.variant = variant_of(config);
  spec.fingerprint = {{"in_channels", std::to_string(config.in_channels)},
                      {"ofs_embed_dim", mark_of(config.ofs_embed_dim)},
                      {"patch_size_t", mark_of(config.patch_size_t)}};
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.out_channels;
  spec.text_length = config.max_text_seq_length;
  spec.patch = {config.patch_size_t.value_or(1), side, side};
  spec.stride = {vae.frames_a_latent(), pixels, pixels};
  if (config.patch_size_t) spec.largest = {config.sample_height * pixels, config.sample_width * pixels};
  spec.image = images_of(config, checkpoint.is_widened("transformer"));
  spec.decodes_pairs = true;
  spec.defaults = {.width = config.sample_width * pixels,
                   .height = config.sample_height * pixels,
                   .frames = config.sample_frames,
                   .steps = kCogVideoXSteps,
                   .guidance = kCogVideoXGuidance,
                   .fps = kFps};
  return spec;
}

}  // namespace

SchedulerConfig parse_cogvideox_scheduler_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  SchedulerConfig config;
  config.num_train_timesteps = fields.integer("num_train_timesteps", 1000, 1, 1'000'000);
  config.beta_start = fields.number("beta_start", 0.00085, 0, 1);
  config.beta_end = fields.number("beta_end", 0.0120, 0, 1);
  config.beta_schedule =
      fields.choice("beta_schedule", "scaled_linear", {"linear", "scaled_linear", "squaredcos_cap_v2"});
  config.trained_betas = fields.optional_numbers("trained_betas", 0, 1);
  config.set_alpha_to_one = fields.boolean("set_alpha_to_one", true);
  config.steps_offset = fields.integer("steps_offset", 0, 0, config.num_train_timesteps);
  config.prediction_type = fields.choice("prediction_type", "epsilon", {"epsilon", "sample", "v_prediction"});
  config.timestep_spacing = fields.choice("timestep_spacing", "leading", {"linspace", "leading", "trailing"});
  config.rescale_betas_zero_snr = fields.boolean("rescale_betas_zero_snr", false);
  config.snr_shift_scale = fields.positive_number("snr_shift_scale", 3.0);
  if (config.beta_start > config.beta_end) fields.fail("beta_start", "is above beta_end");
  const auto betas = static_cast<int64_t>(config.trained_betas.size());
  if (betas != 0 && betas != config.num_train_timesteps)
    fields.fail("trained_betas", "has " + std::to_string(betas) + " entries, but num_train_timesteps is " +
                                     std::to_string(config.num_train_timesteps));
  return config;
}

Family cogvideox_family() {
  const auto sampler = [](const char* name, const char* class_name, SamplerKind kind) {
    return SamplerSpec{.name = name, .class_name = class_name, .kind = kind, .parse = parse_cogvideox_scheduler_config};
  };
  return {.pipeline_class = "CogVideoXPipeline",
          .name = "CogVideoX",
          .other_classes = {"CogVideoXImageToVideoPipeline"},
          .parts = {{"scheduler", {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"}},
                    t5_part(),
                    t5_tokenizer_part(),
                    cogvideox_transformer_part(),
                    cogvideox_vae_part()},
          .fingerprint = {"in_channels", "ofs_embed_dim", "patch_size_t"},
          .lora = {.blocks = "transformer_blocks.",
                   .layers = {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "norm1.linear",
                              "norm2.linear", "ff.net.0.proj", "ff.net.2"},
                   .input = "patch_embed.proj",
                   .take_image = take_image},
          .samplers = {sampler("ddim", "CogVideoXDDIMScheduler", SamplerKind::ddim),
                       sampler("dpm", "CogVideoXDPMScheduler", SamplerKind::dpm_solver)},
          .describe = describe_cogvideox};
}

}  // namespace sparsereel::models
