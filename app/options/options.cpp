// Turns merged settings into option structs, and makes every check that needs no model weights.
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
#include "app/options/text_file.h"
#include "app/options/tiny_model.h"
#include "attention/attention.h"
#include "hilbert/error.h"
#include "models/engine/device_choices.h"
#include "models/request/asked_policy.h"
#include "models/request/request.h"
#include "models/request/resolve.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/configs/config_file.h"
#include "models/store/configs/data_folder.h"
#include "models/store/configs/model_of_files.h"
#include "models/store/weights/device.h"

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
  needed = needed && !settings.has("random_weights");  // random weights understand no prompt
  if (const Setting* prompt = settings.find("prompt")) {
    // A recipe must reproduce its video even if the prompt was empty.
    if (needed && prompt->source != Source::recipe && is_blank(prompt->value))
      throw bad_option("prompt", "is empty", "say what to show");
    return prompt->value;
  }
  if (!needed) return {};
  throw bad_input("a prompt is missing", "say what to show with -p \"...\" or --prompt-file");
}

models::Checkpoint folder_of(const models::Architecture& architecture) {
  return models::Checkpoint::with_random_weights(architecture.config.file, architecture.transformer_class,
                                                 architecture.components);
}

/// Returns the user's files for single parts of the model, by role.
std::map<std::string, std::string> files_of_parts(const Settings& settings) {
  std::map<std::string, std::string> files;
  for (const models::Family& family : models::families()) {
    for (const models::Part& part : family.parts) {
      const OptionSpec* option = find_option(part.role);
      const auto file = settings.text(part.role);
      if (file && option != nullptr && option->kind() == ValueKind::file) files[part.role] = *file;
    }
  }
  return files;
}

/// Returns true if the settings give an image. If they give neither an image nor a prompt, returns nothing, because the
/// rows of a prompt set may give images.
std::optional<bool> gives_images(const Settings& settings) {
  if (settings.has("image") || settings.has("last_image")) return true;
  return lacks_prompt(settings) ? std::nullopt : std::optional(false);
}

/// The facts about the settings' model that are known before its weights are read.
struct KnownModel {
  models::ModelConfig config;  // without defaults if no file of configs/ fits
  models::Defaults defaults;   // the model's own defaults
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

/// Returns the causes in the request and its device that leave options without effect. read_generate_options() calls
/// this function, so it applies to every command that denoises.
std::vector<NoEffectCause> no_effect_beside_request(const Settings& settings, const models::Request& request) {
  const bool asks_for_gpu = request.offload == models::Offload::on || request.max_vram || request.arithmetic == 16;
  const models::RunFacts facts = {.settings = &settings,
                                  .request = &request,
                                  .on_cpu = asks_for_gpu && models::resolve_device(request.device).is_cpu()};
  return models::no_effect_causes(models::kDecidedByRequest, facts);
}

void append(std::vector<NoEffectCause>& all, std::vector<NoEffectCause> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

std::vector<fs::path> files_written(const GenerateOptions& options) {
  const RunOptions& run = options.run;
  return {run.output, sound_beside(run.output), run.contact_sheet, run.preview, options.save_latents};
}

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
  throw bad_input("no model was given, and the default, the tiny model, is not in " + tiny.string(),
                  "name a model's folder or file with -m");
}

models::Checkpoint open_model(const RunOptions& run) {
  if (run.random_weights) return folder_of(models::read_architecture(run.model));
  if (const std::string ending = run.model.extension().string(); ending == ".yaml" || ending == ".yml")
    throw bad_file(run.model, "describes a model and holds no weights",
                   "see what the model needs with 'inspect " + run.model.string() +
                       "', or try its shapes with --random-weights " + run.model.string());
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
  if (use == PresetUse::whole) add_profile(settings);  // otherwise the caller compares the profile with other settings
  const KnownModel known = known_model(settings);
  settings.set_fallbacks(known.defaults);
  settings.set_model_config(known.config);
  settings.add_model_config(use);
}

void add_profile(Settings& settings) {
  if (recipe_has_profile(settings))
    settings.remove(Source::profile);
  else
    models::add_profile(settings);
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
  // Check again after reserving, because the run that held the name may have just written its file and ended. Each
  // reservation keeps a file open, so only the first kMostReserved names are reserved. That is enough: another run that
  // tries the same names finds these taken.
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
  run.preview = settings.text("preview", "");
  run.video.fps = settings.number("fps").value_or(settings.fallbacks().fps);
  run.video.crf = static_cast<int>(std::clamp<int64_t>(settings.whole("crf").value_or(17), -1, 1000));
  run.video.codec = settings.text("codec", "");
  run.metadata = !settings.flag("no_metadata");
  run.no_audio = settings.flag("no_audio");
  run.threads = settings.whole("threads");
  if (run.threads) models::check_threads(*run.threads);
  run.quiet = settings.flag("quiet");
  run.verbose = settings.flag("verbose");
  return run;
}

models::Request read_request(const Settings& settings, Command command) {
  return models::read_request(settings, [&](const std::string& key) { return takes(command, *find_option(key)); });
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
    request.seed = std::random_device{}();  // only 32 bits, so that people can copy it easily
    options.checkpoint_every = 0;           // the same command would make another video, so nothing could resume
  }
  models::make_policy(request);  // refuses settings that no model can run
  options.profile = models::apply_profile(settings, request);
  options.no_effect = no_effect_beside_request(settings, request);
  return options;
}

void settle_options(const Settings& settings, GenerateOptions& options, const models::Pipeline& pipeline) {
  const attention::Mode mode =
      models::choose_attention_mode(options.request.attention_mode, pipeline.device(), pipeline.dtype());
  if (models::is_exact(settings, mode)) options.profile.reset();
  if (options.profile)
    models::check_profile(*options.profile, options.run.model.string(), pipeline.model_hash(), pipeline.heads());
  const models::RunFacts facts = {.settings = &settings,
                                  .request = &options.request,
                                  .model = &pipeline.spec(),
                                  .attention_mode = mode,
                                  .is_by_head = options.profile && options.profile->by_head(),
                                  .has_random_seed = options.random_seed};
  if (!facts.model->takes_frame_rate) options.run.video.fps = facts.model->defaults.fps;
  append(options.no_effect, models::no_effect_causes(models::kDecidedByRun, facts));
  // A warning names the first cause of an option, so put the causes of the model first: they hold for every request.
  const std::vector<NoEffectCause> of_model = no_effect_beside_model(options.request, pipeline);
  options.no_effect.insert(options.no_effect.begin(), of_model.begin(), of_model.end());
  append(options.no_effect, no_effect_beside_output(settings, options.run));
}

std::vector<NoEffectCause> no_effect_beside_model(const models::Request& request, const models::Pipeline& pipeline) {
  return models::no_effect_causes(models::kDecidedByModel,
                                  {.request = &request,
                                   .model = &pipeline.spec(),
                                   .narrow_blocks = pipeline.why_weights_have_no_effect(),
                                   .narrow_layers = pipeline.why_text_weights_have_no_effect()});
}

std::vector<NoEffectCause> no_effect_beside_output(const Settings& settings, const RunOptions& run) {
  const OutputKind kind = output_kind(run.output);
  return models::no_effect_causes(models::kDecidedByOutput,
                                  // Name the kind of output, not the file, so that many rows of a set share one
                                  // warning.
                                  {.output = kind == OutputKind::png_folder ? "PNGs" : run.output.extension().string(),
                                   .is_encoded = kind == OutputKind::encoded,
                                   .has_frame_rate = kind != OutputKind::safetensors || settings.has("save_latents")});
}

int64_t video_count(const Settings& settings) {
  constexpr int64_t kMost = 10'000;
  const int64_t count = settings.whole("batch_count").value_or(1);
  if (count < 1 || count > kMost)
    throw bad_option("batch_count", std::to_string(count) + " is outside 1 to " + std::to_string(kMost),
                     "give a number in that range");
  return count;
}

fs::path numbered(const fs::path& file, int64_t index, int64_t count) {
  if (count == 1 || file.empty()) return file;
  std::string number = std::to_string(index + 1);
  number.insert(0, std::to_string(count).size() - number.size(), '0');
  const fs::path name = file.has_filename() ? file.filename() : file.parent_path().filename();
  if (name.empty() || name == "." || name == "..")
    throw bad_file(file, "this has no file name that --batch-count could number", "name a file or a new folder");
  if (!file.has_filename()) return (file.parent_path().string() + "-" + number) / fs::path();  // a folder
  return fs::path(file).replace_filename(file.stem().string() + "-" + number + file.extension().string());
}

std::vector<Settings> settings_of_videos(const Settings& settings) {
  const int64_t count = video_count(settings);
  if (count == 1) return {settings};
  const models::Request request =
      read_generate_options(settings).request;  // once, because standard input can be read only once
  std::vector<Settings> videos;
  for (int64_t i = 0; i < count; ++i) {
    std::map<std::string, std::string> own = {{"seed", std::to_string(request.seed + static_cast<uint64_t>(i))}};
    if (settings.has("prompt_file")) own["prompt"] = request.prompt;
    for (const OptionSpec& option : option_table())
      if (const auto file = settings.text(option.key()); file && option.scope == Scope::one_video)
        own[option.key()] = numbered(*file, i, count).string();
    videos.push_back(settings);
    videos.back().add(Source::row, own, "video " + std::to_string(i + 1));
  }
  return videos;
}

}  // namespace sparsereel::app
