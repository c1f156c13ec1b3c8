// Describes a MiniMax-H3 checkpoint before its weights are read.
#include "models/families/minimax_h3/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/families/minimax_h3/config.h"
#include "models/families/minimax_h3/names.h"
#include "models/families/minimax_h3/sound_config.h"
#include "models/families/minimax_h3/vae_config.h"
#include "models/files/config_fields.h"
#include "models/request/patch_config.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/qwen3_config.h"
#include "models/text/encoder/qwen3_names.h"

namespace sparsereel::models {
namespace {

constexpr const char *kPipelineClass = "MiniMaxH3ModularPipeline", *kSchedulerClass = "MiniMaxH3Scheduler";
constexpr const char* kRepository = "MiniMaxAI/MiniMax-H3";
constexpr double kFramesASecond = 24, kSoundLatentsASecond = 40;  // fixed by the reference
/// Number of tokens of a prompt, for estimates. The prompts that the model was trained on have 450 to 900.
constexpr int64_t kUsualPrompt = 1024;

/// Reads the scheduler's config, which has a single field, the shift.
SchedulerConfig parse_minimax_h3_scheduler(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.require_class(kSchedulerClass);
  SchedulerConfig config;
  config.prediction_type = "flow_prediction";
  config.flow_shift = fields.positive_number("shift", 12);
  return config;
}

void check_text_width(const Checkpoint& checkpoint, const MiniMaxH3Config& config) {
  std::string file;
  const nlohmann::json json = checkpoint.config("text_encoder", &file);
  check_fits(file, "hidden_size", parse_qwen3_config(json, file).hidden_size, "text_dim", config.text_dim);
}

/// Returns the config of the checkpoint's processor, or the values of Qwen3-VL if the checkpoint names no processor.
PatchConfig patches_of_images(const Checkpoint& checkpoint) {
  if (std::ranges::count(checkpoint.roles(), kProcessor) == 0) return {};
  std::string file;
  const nlohmann::json json = checkpoint.config(kProcessor, &file);
  return parse_patch_config(json, file);
}

SoundSpec describe_sound(const Checkpoint& checkpoint, const MiniMaxH3Config& config) {
  std::string file;
  const nlohmann::json json = checkpoint.config(kSoundVae, &file);
  const MiniMaxH3SoundConfig sound = parse_minimax_h3_sound_config(json, file);
  check_fits(file, "latent_channels", sound.latent_channels, "audio_in_channels", config.audio_in_channels);
  return {.latent_channels = sound.latent_channels,
          .channels = MiniMaxH3Config::kSoundChannels,
          .sampling_rate = sound.sampling_rate,
          .samples_a_latent = sound.samples_a_latent(),
          .latents_a_second = kSoundLatentsASecond};
}

ModelSpec describe_minimax_h3(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const MiniMaxH3Config config = parse_minimax_h3_config(transformer, file);
  const MiniMaxH3VaeConfig vae = parse_minimax_h3_vae_config(vae_json, vae_file);
  check_text_width(checkpoint, config);
  check_fits(vae_file, "latent_channels", vae.latent_channels, "in_channels", config.in_channels);
  ModelSpec spec;
  spec.variant = "33B layout";
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.in_channels;
  spec.text_length = kUsualPrompt;
  spec.patch = config.patch_size;
  spec.stride = {vae.frames_a_latent(), vae.pixels_a_latent(), vae.pixels_a_latent()};
  spec.clips = {.frames = vae.clip_length,
                .latents = vae.latents_a_clip(),
                .more_frames = vae.overlapping_frames(),
                .more_latents = vae.overlapping_latents()};
  spec.usual_sizes = {.least_edge = 480, .most_edge = 768, .most_ratio = 4, .least_frames = 124, .most_frames = 345};
  spec.image = {.latents = ImageSpec::Latents::keyframes,
                .takes_last = true,
                .last_alone = true,
                .keeps_short_edge = true,
                .keyframe_time = MiniMaxH3Config::kKeyframeTime,
                .text_patches = patches_of_images(checkpoint)};
  spec.sound = describe_sound(checkpoint, config);
  spec.layout = LatentLayout::channels_first;
  spec.noise = spec.latents = spec.vae = Precision::fp32;
  spec.takes_guidance = spec.takes_scheduler = spec.takes_frame_rate = false;
  spec.takes_vae_tiling = spec.takes_vae_dtype = false;
  spec.overflows_in_fp16 = true;
  spec.attribution = "MiniMax H3";
  spec.license = "MiniMax H3 Community License: read its terms at https://huggingface.co/" + std::string(kRepository);
  spec.defaults = {.width = 1344, .height = 768, .frames = 124, .steps = 50, .guidance = 1, .fps = kFramesASecond};
  return spec;
}

}  // namespace

Family minimax_h3_family() {
  return {.pipeline_class = kPipelineClass,
          .name = "MiniMax-H3",
          .parts = {{"scheduler", {kSchedulerClass}},
                    {kSoundScheduler, {kSchedulerClass}},
                    qwen3_vl_part("qwen3vl_32b_minimax_h3_nvfp4_awq.safetensors"),
                    qwen3_tokenizer_part(kRepository),
                    qwen3_processor_part(),
                    minimax_h3_transformer_part(),
                    minimax_h3_vae_part(),
                    minimax_h3_sound_vae_part()},
          .prompt = {.encodes_padding = false, .has_length = false},
          .lora = minimax_h3_lora_names(),
          .samplers = {{.name = "euler",
                        .class_name = kSchedulerClass,
                        .kind = SamplerKind::flow_to_data,
                        .parse = parse_minimax_h3_scheduler,
                        .counts_clean_end = true}},
          .describe = describe_minimax_h3};
}

}  // namespace sparsereel::models
