// `sparsereel config show`: resolves the options as `generate` would, without loading weights, and prints each value's
// source.
#include "app/commands/config.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "app/latents.h"
#include "app/options.h"
#include "app/report.h"
#include "models/device.h"

namespace sparsereel::app {
namespace {

std::string source_name(const Settings& settings, const std::string& key) {
  static const std::set<std::string> from_checkpoint = {"scheduler", "max_sequence_length", "width", "height",
                                                        "frames"};
  const Setting* setting = settings.find(key);
  if (setting == nullptr) return from_checkpoint.contains(key) ? "checkpoint" : "default";
  switch (setting->source) {
    case Source::command_line:
      return "command line";
    case Source::config_file:
      return setting->file;
    case Source::matched_config:
      return setting->file + " (matches the checkpoint)";
  }
  return {};
}

/// Values that neither an option nor the recipe holds.
nlohmann::json other_values(const GenerateOptions& options) {
  return {{"model", options.run.model.string()},
          {"output", options.run.output.string()},
          {"crf", options.run.video.crf},
          {"no_metadata", !options.run.metadata},
          {"quiet", options.run.quiet}};
}

}  // namespace

void show_config(const Settings& settings) {
  GenerateOptions options = read_generate_options(settings, false);
  if (!options.init_latents.empty()) options.request.init_latents = load_latents(options.init_latents).latents;
  const auto pipeline = models::Pipeline::open(options.run.model.string(), options.run.device, options.run.dtype);
  options.request.attention_mode = choose_attention_mode(settings, options, pipeline->device(), pipeline->dtype());
  nlohmann::json values = make_recipe(options, pipeline->resolve(options.request), *pipeline, {});
  values.update(other_values(options));
  values["device"] = pipeline->device().str();
  if (options.run.vae_tiling == models::VaeTiling::automatic) values["vae_tiling"] = "auto";
  for (const OptionSpec& spec : option_table()) {
    if (spec.key == "size") continue;
    nlohmann::json value;
    if (values.contains(spec.key)) {
      value = values[spec.key];
    } else if (const auto text = settings.text(spec.key)) {
      value = *text;
    } else {
      continue;
    }
    // JSON's scalars are YAML's: what is printed can be given to --config again.
    const std::string line = spec.key + ": " + dump(value);
    std::printf("%-50s # %s\n", line.c_str(), source_name(settings, spec.key).c_str());
  }
}

}  // namespace sparsereel::app
