// From merged settings to option structs, with every check that needs no model weights.
#include "app/options/options.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <random>
#include <system_error>
#include <utility>

#include "app/counted.h"
#include "app/options/published_models.h"
#include "app/options/recipe.h"
#include "app/options/several.h"
#include "app/options/text_file.h"
#include "app/options/tiny_model.h"
#include "attention/attention.h"
#include "hilbert/error.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/family.h"
#include "models/checkpoint/foreign_model.h"
#include "models/configs/config_file.h"
#include "models/configs/data_folder.h"
#include "models/configs/model_of_files.h"
#include "models/engine/request.h"
#include "models/weights/device.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

std::string read_prompt_file(const Settings& settings) {
  const fs::path file = settings.text("prompt_file", "");
  const std::string content = read_input(file, models::kMostPromptBytes);
  std::string text(checked_text(content, name_of_input(file)));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
  if (text.empty()) throw bad_option("prompt_file", file.string() + " is empty", "write the prompt into it");
  return text;
}

std::string read_prompt(const Settings& settings, bool needed) {
  if (settings.has("prompt_file")) return read_prompt_file(settings);
  needed = needed && !settings.has("random_weights");  // they understand none
  if (const Setting* prompt = settings.find("prompt")) {
    // A recipe makes its video again, whatever that shows.
    if (needed && prompt->source != Source::recipe && is_blank(prompt->value))
      throw bad_option("prompt", "is empty", "say what to show");
    return prompt->value;
  }
  if (!needed) return {};
  throw bad_input("a prompt is missing", "say what to show with -p \"...\" or --prompt-file");
}

/// Whether a stronger source than the profile says how many blocks all heads compute.
bool chooses_blocks(const Settings& settings) {
  return std::ranges::any_of(models::kHowManyBlocks, [&](const char* key) {
    const Setting* setting = settings.find(key);
    return setting != nullptr && setting->source > Source::profile;
  });
}

/// The request gets the profile's policy for each head, unless one for all is given beside it.
models::TunedProfile apply_profile(const Settings& settings, models::Request& request) {
  const fs::path file = settings.text("profile", "");
  const attention::Profile profile = models::read_profile(file);
  models::TunedProfile tuned = models::describe_profile(file, profile);
  if (chooses_blocks(settings) || settings.text("attention") == "quantized") tuned.heads = {};
  if (tuned.by_head()) models::use_heads(profile, request);
  return tuned;
}

/// How an error names a choice that may be the program's own.
std::string named(const Settings& settings, const char* key, std::string_view value) {
  return settings.has(key) ? settings.describe(key) : settings.describe(key) + " " + std::string(value);
}

models::Checkpoint folder_of(const models::Architecture& architecture) {
  return models::Checkpoint::with_random_weights(architecture.config.file, architecture.transformer_class,
                                                 architecture.components);
}

/// What the user names for single parts of the model.
std::map<std::string, std::string> files_of_parts(const Settings& settings) {
  std::map<std::string, std::string> files;
  for (const models::Family& family : models::families()) {
    for (const models::Part& part : family.parts) {
      const OptionSpec* option = find_option(part.role);
      const auto file = settings.text(part.role);
      if (file && option != nullptr && option->kind == ValueKind::file) files[part.role] = *file;
    }
  }
  return files;
}

/// Returns whether the video begins with an image. Nothing without a prompt: rows of a set may have own images.
std::optional<bool> gives_images(const Settings& settings) {
  if (settings.has("image") || settings.has("last_image")) return true;
  return lacks_prompt(settings) ? std::nullopt : std::optional(false);
}

/// What is known beforehand of the model that the settings name.
struct KnownModel {
  models::ModelConfig config;  // without defaults where no file fits
  models::Defaults defaults;   // the model's own
};

KnownModel known_model(const Settings& settings) {
  if (const auto random_weights = settings.text("random_weights")) {
    const models::Architecture architecture = models::read_architecture(*random_weights);
    return {architecture.config, models::describe(folder_of(architecture)).defaults};
  }
  const models::ModelSpec model = models::describe(open_model(settings));
  const fs::path configs = models::data_folder() / "configs";
  return {models::find_model_config(configs, model).value_or(models::ModelConfig{.file = configs}), model.defaults};
}

/// For every command that denoises.
std::vector<IdleCause> causes_of_denoising(const Settings& settings, const GenerateOptions& options) {
  const double guidance = options.request.guidance_scale.value_or(settings.fallbacks().guidance);
  const std::string given = settings.has("cfg_scale") ? settings.describe("cfg_scale") : "the model's default";
  std::vector<IdleCause> causes = {
      {Idle::no_guidance, "cfg_scale", models::why_idle_without_guidance(guidance, given)}};
  if (options.request.loras.empty()) causes.push_back({Idle::no_lora, "lora", "without a LoRA"});
  if (options.request.image.empty()) causes.push_back({Idle::no_image, "image", "without an image"});
  if (options.request.arithmetic == 16)
    causes.push_back(
        {Idle::in_fp32, "device", models::why_idle_arithmetic(models::resolve_device(options.request.device))});
  if (options.request.offload)
    causes.push_back(
        {Idle::on_a_cpu, "device", models::why_idle_offload(models::resolve_device(options.request.device))});
  return causes;
}

}  // namespace

bool lacks_prompt(const Settings& settings) {
  const std::array keys = {"prompt", "prompt_file", "random_weights"};
  return std::none_of(keys.begin(), keys.end(), [&](const char* key) { return settings.has(key); });
}

fs::path model_path(const Settings& settings) {
  if (const auto model = settings.text("model")) {
    if (model->empty()) throw bad_option("model", "is empty", "name a folder, or leave it out for the tiny model");
    return *model;
  }
  if (const auto file = settings.text("random_weights")) return *file;
  for (const char* expert : {"transformer", "transformer_2"})
    if (const auto file = settings.text(expert)) return *file;
  fs::path tiny = tiny_model();
  if (fs::is_directory(tiny)) return tiny;
  throw bad_input("no model was given, and the tiny model is not in " + tiny.string(),
                  "name a folder in diffusers' layout with -m");
}

models::Checkpoint open_model(const RunOptions& run) {
  if (run.random_weights) return folder_of(models::read_architecture(run.model));
  try {
    return models::open_model(run.model, run.files, models::data_folder() / "configs", run.with_images);
  } catch (const Error& error) {
    std::error_code ignored;
    if (!fs::exists(run.model, ignored)) throw missing_model(run.model.string(), error);
    throw models::or_foreign(error, run.model, run.files);
  }
}

models::Checkpoint open_model(const Settings& settings) {
  RunOptions run;
  run.model = model_path(settings);
  run.files = files_of_parts(settings);
  run.random_weights = settings.has("random_weights");
  run.with_images = gives_images(settings);
  return open_model(run);
}

void collect_settings(Settings& settings, const std::map<std::string, std::string>& command_line,
                      const std::string& config_file, PresetUse use) {
  settings.add(Source::command_line, command_line);
  if (!config_file.empty()) {
    const models::YamlOptions config = models::read_config_file(config_file);
    settings.add(Source::config_file, config.values, config_file, config.places);
  }
  if (const auto video = settings.text("from")) add_recipe(settings, *video);
  if (use == PresetUse::whole) add_profile(settings);  // else it stands beside others
  const KnownModel known = known_model(settings);
  settings.set_fallbacks(known.defaults);
  settings.set_model_config(known.config);
  settings.add_model_config(use);
}

void add_profile(Settings& settings) {
  settings.remove(Source::profile);
  const auto file = settings.text("profile");
  if (!file || settings.text("attention") == "full" || recipe_has_profile(settings)) return;
  settings.add(Source::profile, models::options_of(models::read_profile(*file), *file), *file);
}

Settings with_preset(Settings settings, const std::string& preset) {
  settings.add_model_config(PresetUse::whole, preset);
  return settings;
}

Reservations choose_output(Settings& settings, int64_t count, bool reserves) {
  if (settings.has("output")) return {};
  const fs::path first = kDefaultOutput;
  fs::path name = first;
  const auto any = [&](int64_t most, const auto& f) {
    for (int64_t i = 0; i < std::min(count, most); ++i)
      if (f(numbered(name, i, count))) return true;
    return false;
  };
  const auto is_there = [](const fs::path& video) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(video, ignored));
  };
  const auto is_taken = [&] { return any(count, is_there); };
  Reservations reserved;
  const auto is_reserved = [&](const fs::path& video) { return reserves && !models::reserve(video, reserved); };
  // Looked at again once it is reserved: the run that had it may just have ended. A reservation keeps a file open, so
  // that of thousands the first ones stand for all.
  constexpr int64_t kMostReserved = 256;
  for (int number = 2; is_taken() || any(kMostReserved, is_reserved) || is_taken(); ++number) {
    reserved.clear();
    name = first.stem().string() + "-" + std::to_string(number) + first.extension().string();
  }
  settings.add(Source::command_line, {{"output", name.string()}});
  return reserved;
}

RunOptions read_run_options(const Settings& settings) {
  RunOptions run;
  run.model = model_path(settings);
  run.files = files_of_parts(settings);
  run.random_weights = settings.has("random_weights");
  run.with_images = gives_images(settings);
  run.model_name = (run.random_weights ? "random weights of " : "") + fs::canonical(run.model).filename().string();
  run.output = settings.text("output", kDefaultOutput);
  run.contact_sheet = settings.text("contact_sheet", "");
  run.video.fps = settings.number("fps").value_or(settings.fallbacks().fps);
  run.video.crf = static_cast<int>(std::clamp<int64_t>(settings.whole("crf").value_or(17), -1, 1000));
  run.video.codec = settings.text("codec", "");
  run.metadata = !settings.flag("no_metadata");
  run.threads = settings.whole("threads");
  if (run.threads) models::check_threads(*run.threads);
  run.quiet = settings.flag("quiet");
  run.verbose = settings.flag("verbose");
  return run;
}

models::Request read_request(const Settings& settings, Command command) {
  std::map<std::string, std::string> values;
  for (const OptionSpec& option : option_table())
    if (const auto value = settings.text(option.key); value && takes(command, option)) values[option.key] = *value;
  if (is_random_seed(settings.text("seed", ""))) values.erase("seed");
  return models::read_request(values);
}

GenerateOptions read_generate_options(const Settings& settings, bool prompt_needed) {
  GenerateOptions options;
  options.run = read_run_options(settings);
  options.save_latents = settings.text("save_latents", "");
  options.init_latents = settings.text("init_latents", "");
  options.checkpoint_every = settings.whole("checkpoint_every").value_or(0);
  if (options.checkpoint_every < 0)
    throw bad_option("checkpoint_every", std::to_string(options.checkpoint_every) + " is below 0",
                     "give a number of steps, or 0 for none");
  models::Request& request = options.request = read_request(settings);
  request.prompt = read_prompt(settings, prompt_needed);
  request.fps = options.run.video.fps;
  options.random_seed = is_random_seed(settings.text("seed", ""));
  if (options.random_seed) {
    request.seed = std::random_device{}();  // short, since people copy it
    options.checkpoint_every = 0;           // the same command makes another video
  }
  models::make_policy(request);  // refuses what no model could do
  if (settings.has("profile")) options.profile = apply_profile(settings, request);
  options.idle = causes_of_denoising(settings, options);
  return options;
}

void settle_options(const Settings& settings, GenerateOptions& options, const models::Pipeline& pipeline) {
  const attention::Mode mode =
      models::choose_attention_mode(options.request.attention_mode, pipeline.device(), pipeline.dtype());
  const std::string every_block = models::why_idle(mode, named(settings, "attention", attention::name(mode)));
  options.idle.push_back({Idle::every_block, "attention", every_block});
  const Setting* given = settings.find("attention");
  const bool exact = mode == attention::Mode::full && (given == nullptr || given->source != Source::profile);
  if (exact) options.idle.push_back({Idle::exact, "attention", every_block});
  if (exact) options.profile.reset();
  if (options.profile)
    models::check_profile(*options.profile, options.run.model.string(), pipeline.model_hash(), pipeline.heads());
  if (options.profile && options.profile->by_head())
    options.idle.push_back(
        {Idle::profile, "profile", "with " + settings.describe("profile") + ", which has a policy for each head"});
  else
    options.idle.push_back(
        {Idle::no_means, "dropped",
         models::why_idle(models::make_policy(options.request), named(settings, "dropped", "none"))});
  for (IdleCause& cause : idle_beside_model(options.request, pipeline)) options.idle.push_back(std::move(cause));
  options.idle.push_back({Idle::no_reuse, "steps", models::why_idle_cache(options.request, pipeline.spec())});
  if (options.random_seed)
    options.idle.push_back(
        {Idle::random_seed, "seed", "with " + settings.describe("seed") + ": the same command makes another video"});
  for (IdleCause& cause : idle_beside_output(settings, options.run)) options.idle.push_back(std::move(cause));
}

std::vector<IdleCause> idle_beside_model(const models::Request& request, const models::Pipeline& pipeline) {
  const models::ModelSpec& spec = pipeline.spec();
  return {{Idle::one_transformer, "model", models::why_idle_second_scale(spec)},
          {Idle::no_flow, "scheduler", models::why_no_flow(request, spec)},
          {Idle::narrow_blocks, "model", pipeline.why_idle_weights()},
          {Idle::narrow_layers, "model", pipeline.why_idle_text_weights()}};
}

std::vector<IdleCause> idle_beside_output(const Settings& settings, const RunOptions& run) {
  const OutputKind kind = output_kind(run.output);
  // By its kind, not its name: many rows of a set share one warning.
  const std::string given = kind == OutputKind::png_folder ? "PNGs" : run.output.extension().string();
  std::vector<IdleCause> causes;
  if (kind != OutputKind::encoded)
    causes.push_back({Idle::not_encoded, "output", "on " + given + ": it is for .mp4, .mov, .mkv and .webm"});
  if (kind == OutputKind::safetensors && !settings.has("save_latents"))
    causes.push_back({Idle::no_frame_rate, "output", "on " + given + ", which holds frames alone"});
  return causes;
}

}  // namespace sparsereel::app
