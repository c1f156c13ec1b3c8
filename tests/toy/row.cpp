// Describes the toy family to the engine: its entry for the table of model families.
#include "models/samplers/flow_config.h"
#include "models/samplers/linear_quadratic.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/t5_config.h"
#include "tests/toy/toy.h"
#include "tests/toy/toy_config.h"

namespace sparsereel::test {
namespace {

models::ModelSpec describe_toy(const models::Checkpoint& checkpoint) {
  std::string file, vae_file, text_file;
  const ToyConfig config = parse_toy_config(checkpoint.config("transformer", &file), file);
  const ToyVaeConfig vae = parse_toy_vae_config(checkpoint.config("vae", &vae_file), vae_file);
  const auto text = models::parse_t5_config(checkpoint.config("text_encoder", &text_file), text_file);
  models::check_fits(text_file, "d_model", text.d_model, "text_dim", config.text_dim);
  models::check_fits(vae_file, "latent_channels", vae.channels, "in_channels", config.channels);
  models::ModelSpec spec;
  spec.variant = "of the tests";
  spec.layers = config.layers;
  spec.heads = config.heads;
  spec.head_dim = config.head_dim;
  spec.latent_channels = config.channels;
  spec.text_length = 12;
  spec.image.latents = models::ImageSpec::Latents::first_frame_stays;
  spec.patch = config.patch;
  spec.stride = vae.stride;
  spec.layout = models::LatentLayout::channels_first;
  spec.noise = spec.latents = spec.vae = models::Precision::fp32;
  spec.defaults = {
      .width = 64, .height = 64, .frames = 7, .steps = 4, .guidance = 3, .fps = 8, .negative_prompt = "grey"};
  if (const nlohmann::json boundary = checkpoint.setting("boundary_ratio"); !boundary.is_null())
    spec.experts = {{.role = "transformer", .from_share = boundary.get<double>()},
                    {.role = "transformer_2", .guidance = 2}};
  return spec;
}

}  // namespace

models::Family toy_family() {
  return {.pipeline_class = "ToyPipeline",
          .name = "Toy",
          .parts = {{"scheduler", {"FlowMatchEulerDiscreteScheduler", "UniPCMultistepScheduler"}},
                    {"text_encoder", {"T5EncoderModel"}},
                    {"tokenizer", {"T5Tokenizer"}},
                    {"transformer", {"ToyTransformer3DModel"}},
                    {"transformer_2", {"ToyTransformer3DModel"}, true},
                    {"vae", {"AutoencoderKLToy"}}},
          .settings = {"boundary_ratio"},
          .prompt = {.cleaned = true, .encodes_padding = false},
          .samplers = {{.name = "euler",
                        .class_name = "FlowMatchEulerDiscreteScheduler",
                        .kind = models::SamplerKind::flow_euler,
                        .parse = models::parse_flow_euler_config,
                        .sigmas = [](int64_t steps) { return models::linear_quadratic_sigmas(steps, 0.025); }},
                       {.name = "unipc",
                        .class_name = "UniPCMultistepScheduler",
                        .kind = models::SamplerKind::unipc,
                        .parse = models::parse_unipc_config}},
          .describe = describe_toy};
}

}  // namespace sparsereel::test
