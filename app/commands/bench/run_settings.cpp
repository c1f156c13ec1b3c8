// Names what a run resolved to.
#include "app/commands/bench/run_settings.h"

#include "app/counted.h"

#include "models/checkpoint/family.h"
#include "models/weights/device.h"

namespace sparsereel::app::bench {

nlohmann::json architecture_of(const models::ModelFolder& folder) {
  nlohmann::json architecture;
  for (const std::string& name : folder.roles()) {
    if (name != "tokenizer") architecture[name] = folder.config(name);
  }
  for (const std::string& name : models::architecture_keys()) {
    if (const nlohmann::json setting = folder.setting(name); !setting.is_null()) architecture[name] = setting;
  }
  return architecture;
}

nlohmann::json run_settings(const RunOptions& run, const models::GenerateRequest& request,
                            const models::GenerateSettings& settings, const models::Pipeline& pipeline) {
  const models::ModelSpec& spec = pipeline.spec();
  const double tokens = models::token_count(spec, settings.latent, settings.max_sequence_length);
  return {{"model", run.model_name},
          {"dtype", models::dtype_name(pipeline.dtype())},
          {"weights", pipeline.fp8_weights() ? "fp8" : "auto"},
          {"text_weights", pipeline.fp8_text_weights() ? "fp8" : "auto"},
          {"lora", models::text_of(pipeline.loras(), /*whole_paths=*/false)},
          {"lora_sha256", pipeline.lora_hash()},
          {"width", settings.width},
          {"height", settings.height},
          {"frames", settings.num_frames},
          {"layers", spec.layers},
          {"heads", spec.heads},
          {"head_dim", spec.head_dim},
          {"tokens", static_cast<int64_t>(tokens)},
          {"text_tokens", settings.max_sequence_length},
          {"batch", settings.guidance_scale > 1 && settings.guidance_passes == models::GuidancePasses::batched ? 2 : 1},
          {"guidance_passes", models::name(settings.guidance_passes)},
          {"cfg_scale", settings.guidance_scale},
          {"scheduler", settings.scheduler},
          {"steps", settings.num_inference_steps},
          {"seed", request.seed},
          {"offload", run.offload},
          {"pv_threshold", request.attention_policy.defaults.pv_threshold}};
}

std::string run_summary(const nlohmann::json& machine, const nlohmann::json& settings) {
  const auto number = [&](const char* key) { return std::to_string(settings.at(key).get<int64_t>()); };
  std::string text = machine.at("name").get<std::string>();
  if (machine.at("device") == "cpu") text += ", " + counted(machine.at("threads").get<int>(), "thread");
  std::string weights;
  if (settings.at("weights") == "fp8") weights += ", weights in fp8";
  if (settings.at("text_weights") == "fp8") weights += ", text weights in fp8";
  if (settings.at("lora") != "") weights += ", LoRA " + settings.at("lora").get<std::string>();
  return text + ", " + settings.at("model").get<std::string>() + ", " + settings.at("dtype").get<std::string>() +
         weights + ", " + counted(settings.at("frames").get<int64_t>(), "frame") + " of " + number("width") + "x" +
         number("height") + " (" + number("tokens") + " tokens, guidance batch " + number("batch") + "), " +
         counted(settings.at("steps").get<int64_t>(), "step") + ", seed " + number("seed");
}

}  // namespace sparsereel::app::bench
