// `sparsereel config show`: resolves the options as `generate` would, without loading weights, and prints each value
// with its source.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "app/commands/commands.h"
#include "app/jobs/image.h"
#include "app/jobs/latents.h"
#include "app/jobs/report.h"
#include "app/jobs/write.h"
#include "app/options/options.h"
#include "app/terminal.h"
#include "attention/attention.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

std::string source_name(const Settings& settings, const std::string& key) {
  static const std::set<std::string> from_checkpoint = {"scheduler", "max_sequence_length", "width", "height",
                                                        "frames"};
  const Setting* setting = settings.find(key == "prompt" && !settings.has(key) ? "prompt_file" : key);
  if (setting == nullptr) return from_checkpoint.contains(key) ? "checkpoint" : "default";
  switch (setting->source) {
    case Source::command_line:
      return "command line";
    case Source::config_file:
      return setting->file + ":" + std::to_string(setting->mark.line);
    case Source::profile:
      return "profile " + setting->file;
    case Source::recipe:
      return "recipe of " + setting->file;
    case Source::row:
      return setting->file;
    case Source::distilled:
      return setting->file + ":" + std::to_string(setting->mark.line) + " (distilled " +
             settings.text("distilled", "") + ")";
    case Source::matched_config:
      return setting->file + ":" + std::to_string(setting->mark.line) + " (matches the checkpoint)";
  }
  return {};
}

/// Returns the source of a value. The number of frames may come from --seconds. Width and height, if no source gives
/// them, come from the area of --size and the shape of the image.
std::string source_of(const Settings& settings, const models::Plan& plan, const std::string& key) {
  if (const auto seconds = settings.text("seconds"); seconds && key == "frames")
    return "seconds " + *seconds + " of " + source_name(settings, "seconds");
  const std::string shape = shape_note(plan);
  const auto area = settings.text("size");
  if ((key != "width" && key != "height") || (shape.empty() && !area)) return source_name(settings, key);
  if (!area) return shape;
  return "size " + *area + " of " + source_name(settings, "size") + (shape.empty() ? "" : ", " + shape);
}

/// Returns which images the model takes: "takes image (needed) and last_image", or "takes image and last_image, or one
/// of them". Returns an empty string for a model that takes only text.
std::string images_taken(const models::ImageSpec& spec) {
  if (!spec.any()) return {};
  return std::string("takes image") + (spec.needed ? " (needed)" : "") +
         (spec.takes_last || spec.needs_last ? " and last_image" : "") + (spec.needs_last ? " (needed)" : "") +
         (spec.last_alone ? ", or one of them" : "");
}

/// Returns, by option key, the values that the recipe lacks or gives in another form. The paths of files are absolute,
/// so that a configuration in another folder can use them. Includes the values that a preset may set, even if no preset
/// was chosen.
nlohmann::json other_values(const Settings& settings, const GenerateOptions& options, const models::Plan& plan) {
  nlohmann::json values = {
      {options.run.random_weights ? "random_weights" : "model", std::filesystem::absolute(options.run.model).string()},
      {"output", std::filesystem::absolute(options.run.output).string()},
      {"guidance_passes", models::name(options.request.guidance_passes)},
      {"cache", options.request.cache.on() ? models::name(options.request.cache) : "0"},
      {"weights", options.request.weights},
      {"crf", options.run.video.crf},
      {"no_audio", plan.no_audio},
      {"no_metadata", !options.run.metadata},
      {"quiet", options.run.quiet}};
  if (std::vector<models::LoraChoice> loras = plan.loras; !loras.empty()) {
    for (models::LoraChoice& lora : loras) lora.file = std::filesystem::absolute(lora.file);
    values["lora"] = models::text_of(loras, /*whole_paths=*/true);
  }
  if (options.random_seed) values["seed"] = kRandomSeed;  // each run draws its own seed
  for (const OptionSpec& option : option_table()) {
    const std::string path = option.kind() == ValueKind::file ? settings.text(option.key(), "") : "";
    if (!path.empty()) values[option.key()] = std::filesystem::absolute(path).string();
  }
  return values;
}

/// Returns the keys of options that are not shown: they have no effect on this run, or they only set other options,
/// whose values are shown.
std::set<std::string> left_out(const Settings& settings, const GenerateOptions& options) {
  std::set<std::string> keys = models::options_without_effect(settings.options(), options.no_effect);
  keys.insert({"size", "seconds", "prompt_file", "from", "preset", "distilled"});
  if (!settings.has("prompt") && !settings.has("prompt_file")) keys.insert("prompt");
  return keys;
}

void show_config(const Settings& settings) {
  GenerateOptions options = read_generate_options(settings, false);
  const auto pipeline = models::Pipeline::open(open_model(options.run), options.request);
  settle_options(settings, options, *pipeline);
  print_warnings(no_effect_warnings(settings, options.no_effect));
  PictureFiles pictures;
  make_up_images(pipeline->spec(), options.request);  // `config show` works without the images that the model needs
  settle_images(settings, pipeline->spec(), options.request, pictures);
  const models::Plan plan = pipeline->resolve_anywhere(options.request);
  check_image_shapes(plan, pipeline->spec(), pictures);
  if (!options.init_latents.empty()) pipeline->check_init_latents(plan, load_latents(options.init_latents).latents);
  nlohmann::json values = make_recipe(options, plan, *pipeline, pictures);
  values.erase("model");
  values.update(other_values(settings, options, plan));
  values["device"] = pipeline->device().str();
  const std::set<std::string> hidden = left_out(settings, options);
  for (const OptionSpec& spec : option_table()) {
    if (hidden.contains(spec.key())) continue;
    nlohmann::json value;
    if (values.contains(spec.key())) {
      value = values[spec.key()];
    } else if (const auto text = settings.text(spec.key())) {
      value = *text;
    } else {
      continue;
    }
    // JSON scalars are valid YAML, so --config can read what is printed.
    std::string line = spec.key() + ": " + dump(value);
    line.resize(std::max<size_t>(line.size(), 50), ' ');
    std::cout << line << " # " << one_line(source_of(settings, plan, spec.key())) << "\n";
  }
  if (const std::string images = images_taken(pipeline->spec().image); !images.empty())
    std::cout << "# " << images << "\n";
  print_part_files(pipeline->part_files(), "# ");
}

}  // namespace

void add_config(CLI::App& program, CommandLine& line) {
  CLI::App* above = program.add_subcommand("config", "Shows the settings of a run");
  above->require_subcommand(1);
  CLI::App* command =
      above->add_subcommand("show", "Shows every setting of a run and where it comes from; runs nothing");
  command->footer("sparsereel config show -m MODEL --size 480p");
  add_shared_options(*command, line, Command::generate);
  command->callback([&line] {
    collect_settings(line.settings, line.values, line.config);  // not line.collect(): this command writes no report
    show_config(line.settings);
  });
}

}  // namespace sparsereel::app
