// Describes an Open-Sora-Plan checkpoint before its weights are read.
#include "models/families/open_sora_plan/family.h"

#include <nlohmann/json.hpp>

#include "models/families/open_sora_plan/config.h"
#include "models/families/open_sora_plan/vae_config.h"
#include "models/files/config_fields.h"
#include "models/samplers/euler_ancestral_config.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/t5_names.h"

namespace sparsereel::models {
namespace {

// A checkpoint's files do not contain these defaults; they are those of the reference's scripts.
constexpr int64_t kPlanSteps = 100, kPlanTextLength = 512;
constexpr double kPlanGuidance = 7.5, kPlanFps = 24;

// The words that the reference's scripts put around the prompt, in the form that the reference's cleaning leaves: it
// removes brackets and "jpeg".
constexpr const char *kBeforePrompt = "masterpiece , best quality , ultra-detailed , unwatermarked , ",
                     *kBehindPrompt =
                         ". emotional, harmonious, vignette, 4k epic detailed, shot on kodak, 35mm photo, "
                         "sharp focus, high budget, cinemascope, moody, epic, gorgeous",
                     *kNegativePrompt =
                         "nsfw, lowres, bad anatomy, bad hands, text, error, missing fingers, extra "
                         "digit, fewer digits, cropped, worst quality, low quality, normal quality, "
                         "artifacts, signature, watermark, username, blurry.";

ModelSpec describe_open_sora_plan(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const OpenSoraPlanConfig config = parse_open_sora_plan_config(transformer, file);
  const OpenSoraPlanVaeConfig vae = parse_open_sora_plan_vae_config(vae_json, vae_file);
  check_text_encoder(checkpoint, "mt5", "caption_channels", config.caption_channels);
  check_fits(vae_file, "embed_dim", vae.embed_dim, "in_channels", config.in_channels);
  const int64_t pixels = vae.pixels_a_latent(), frames = vae.frames_a_latent();
  ModelSpec spec;
  spec.variant = "1.2 layout";
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.in_channels;
  spec.text_length = kPlanTextLength;
  spec.joint_text = false;
  spec.patch = {1, config.patch_size, config.patch_size};
  spec.stride = {frames, pixels, pixels};
  spec.layout = LatentLayout::channels_first;
  spec.defaults = {.width = config.sample_width * pixels,
                   .height = config.sample_height * pixels,
                   .frames = (config.sample_frames - 1) * frames + 1,
                   .steps = kPlanSteps,
                   .guidance = kPlanGuidance,
                   .fps = kPlanFps,
                   .negative_prompt = kNegativePrompt};
  return spec;
}

}  // namespace

Family open_sora_plan_family() {
  return {.pipeline_class = "OpenSoraPipeline",
          .name = "Open-Sora-Plan",
          .parts = {{"scheduler", {"EulerAncestralDiscreteScheduler"}},
                    mt5_part(),
                    mt5_tokenizer_part(),
                    open_sora_plan_transformer_part(),
                    open_sora_plan_vae_part()},
          .prompt = {.encodes_padding = false, .lowered = true, .before = kBeforePrompt, .after = kBehindPrompt},
          .lora = {.blocks = "transformer_blocks.",
                   .layers = {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "attn2.to_k",
                              "attn2.to_v", "attn2.to_out.0", "ff.net.0.proj", "ff.net.2"}},
          .samplers = {{.name = "euler-a",
                        .class_name = "EulerAncestralDiscreteScheduler",
                        .kind = SamplerKind::euler_ancestral,
                        .parse = parse_euler_ancestral_config}},
          .describe = describe_open_sora_plan};
}

}  // namespace sparsereel::models
