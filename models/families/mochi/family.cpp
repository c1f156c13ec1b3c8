// Describes a Mochi checkpoint before its weights are read.
#include "models/families/mochi/family.h"

#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/families/mochi/config.h"
#include "models/families/mochi/vae_config.h"
#include "models/files/config_fields.h"
#include "models/samplers/flow_config.h"
#include "models/samplers/linear_quadratic.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/encoder/t5_names.h"

namespace sparsereel::models {
namespace {

constexpr const char* kEmptyPrompt = "force_zeros_for_empty_prompt";

/// Returns the defaults of diffusers' pipeline, but with the authors' number of frames.
Defaults mochi_defaults() {
  return {.width = 848, .height = 480, .frames = 163, .steps = 64, .guidance = 4.5, .fps = 30};
}

/// Returns the noise levels that diffusers' pipeline computes. Its sampler uses them without a shift.
std::vector<double> mochi_sigmas(int64_t steps) {
  return linear_quadratic_sigmas(steps, /*threshold=*/0.025);
}

bool empty_prompt_has_no_tokens(const Checkpoint& checkpoint) {
  const nlohmann::json setting = checkpoint.setting(kEmptyPrompt);
  if (setting.is_null()) return false;
  if (!setting.is_boolean())
    throw bad_file(checkpoint.index_file(), std::string(kEmptyPrompt) + " is " + setting.dump(),
                   "write true or false, or download the file again");
  return setting.get<bool>();
}

ModelSpec describe_mochi(const Checkpoint& checkpoint) {
  std::string file, vae_file;
  const nlohmann::json transformer = checkpoint.config("transformer", &file),
                       vae_json = checkpoint.config("vae", &vae_file);
  const MochiConfig config = parse_mochi_config(transformer, file);
  const MochiVaeConfig vae = parse_mochi_vae_config(vae_json, vae_file);
  check_text_encoder(checkpoint, "t5", "text_embed_dim", config.text_embed_dim);
  check_fits(vae_file, "latent_channels", vae.latent_channels, "in_channels", config.in_channels);
  check_fits(file, "out_channels", config.out_channels, "in_channels", config.in_channels);
  ModelSpec spec;
  spec.variant = "1 layout";
  spec.layers = config.num_layers;
  spec.heads = config.num_attention_heads;
  spec.head_dim = config.attention_head_dim;
  spec.latent_channels = config.in_channels;
  spec.text_length = config.max_sequence_length;
  spec.patch = {1, config.patch_size, config.patch_size};
  spec.stride = {vae.frames_a_latent(), vae.pixels_a_latent(), vae.pixels_a_latent()};
  spec.layout = LatentLayout::channels_first;
  spec.noise = Precision::fp32;
  spec.empty_prompt_has_no_tokens = empty_prompt_has_no_tokens(checkpoint);
  spec.defaults = mochi_defaults();
  return spec;
}

}  // namespace

Family mochi_family() {
  return {.pipeline_class = "MochiPipeline",
          .name = "Mochi",
          .parts = {{"scheduler", {"FlowMatchEulerDiscreteScheduler"}},
                    t5_part(),
                    t5_tokenizer_part(),
                    mochi_transformer_part(),
                    mochi_vae_part()},
          .settings = {kEmptyPrompt},
          .prompt = {.encodes_padding = false},
          .lora = {.blocks = "transformer_blocks.",
                   .layers = {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn1.add_q_proj",
                              "attn1.add_k_proj", "attn1.add_v_proj", "attn1.to_add_out", "norm1.linear",
                              "norm1_context.linear", "norm1_context.linear_1", "ff.net.0.proj", "ff.net.2",
                              "ff_context.net.0.proj", "ff_context.net.2"},
                   .other_blocks = "blocks."},
          .samplers = {{.name = "euler",
                        .class_name = "FlowMatchEulerDiscreteScheduler",
                        .kind = SamplerKind::flow_euler,
                        .parse = parse_flow_euler_config,
                        .sigmas = mochi_sigmas}},
          .describe = describe_mochi};
}

}  // namespace sparsereel::models
