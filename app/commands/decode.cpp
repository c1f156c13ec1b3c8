// `sparsereel decode`: runs the VAE decoder on latents that `generate` saved.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <memory>

#include "app/clock.h"
#include "app/commands/commands.h"
#include "app/counted.h"
#include "app/jobs/frame_writer.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/last_line.h"
#include "app/jobs/latents.h"
#include "app/jobs/outputs.h"
#include "app/jobs/progress.h"
#include "app/jobs/used_files.h"
#include "app/jobs/video.h"
#include "app/jobs/write.h"
#include "app/options/option_text.h"
#include "models/engine/frames.h"
#include "models/files/json_text.h"
#include "models/layers/cpu_threads.h"
#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

/// Returns the recipe saved with the latents, or a new one if there is none.
nlohmann::json saved_recipe(const std::string& text) {
  nlohmann::json recipe = models::parse_json_if_valid(text);
  if (!recipe.is_object()) recipe = {{"version", SPARSEREEL_VERSION}};
  return recipe;
}

bool user_gave(const Settings& settings, const char* key) {
  const Setting* given = settings.find(key);
  return given != nullptr && given->source != Source::matched_config;
}

/// Returns the frame rate in the recipe: the latents were made for this rate. Returns `rate_of_settings` if the user
/// gave a rate, or if the recipe has none.
double frame_rate_of(const Settings& settings, const nlohmann::json& recipe, double rate_of_settings) {
  if (user_gave(settings, "fps")) return rate_of_settings;
  const auto saved = recipe.find("fps");
  return saved != recipe.end() && saved->is_number() ? saved->get<double>() : rate_of_settings;
}

std::string saved_text(const nlohmann::json& recipe, const char* key) {
  const auto field = recipe.find(key);
  return field != recipe.end() && field->is_string() ? field->get<std::string>() : "";
}

const char* kind_of(at::Device device) {
  return device.is_cpu() ? "cpu" : "cuda";
}

/// Returns the dtype of --dtype. Without that option, returns the dtype in which the latents were made, if they were
/// made on the same kind of device: the video then equals the video that `generate` makes. On another kind of device,
/// returns the request's dtype.
std::string dtype_of(const Settings& settings, const nlohmann::json& recipe, const models::Request& request) {
  const std::string made_in = saved_text(recipe, "dtype");
  const bool known = made_in == "fp32" || made_in == "bf16" || made_in == "fp16";
  const bool same_kind = saved_text(recipe, "device") == kind_of(models::resolve_device(request.device));
  return user_gave(settings, "dtype") || !known || !same_kind ? request.dtype : made_in;
}

/// Returns a warning if the latents were made in one dtype or on one kind of device, and decoded in or on another. The
/// video's recipe then describes only how the latents were made. Otherwise returns an empty string.
std::string recipe_warning(const nlohmann::json& recipe, const models::Pipeline& pipeline) {
  const std::string made = saved_text(recipe, "dtype") + " on " + saved_text(recipe, "device");
  const std::string now = models::dtype_name(pipeline.dtype()) + " on " + kind_of(pipeline.device());
  if (!recipe.contains("dtype") || !recipe.contains("device") || made == now) return {};
  return "decoded in " + now + ", but the latents were made in " + made +
         "; 'generate --from' would not make exactly this video";
}

/// Returns the causes that leave options without effect: properties of the output and of the model.
std::vector<NoEffectCause> no_effect_on(const RunOptions& run, const Settings& settings,
                                        const models::ModelSpec& spec) {
  std::vector<NoEffectCause> causes = no_effect_beside_output(settings, run);
  std::ranges::move(
      models::no_effect_causes(std::array{models::NoEffect::no_sound, models::NoEffect::one_frame_rate,
                                          models::NoEffect::one_tile_size, models::NoEffect::one_vae_dtype},
                               {.model = &spec}),
      std::back_inserter(causes));
  return causes;
}

/// Shows the progress of decoding, and hands the frames to their writer.
class DecodedRun final : public ShownRun {
 public:
  DecodedRun(Progress& progress, FrameWriter& writer) : ShownRun(progress), writer_(writer) {}

  models::FrameSink* frames() override { return &writer_; }

 private:
  FrameWriter& writer_;
};

/// Sets the model's frame rate if the model has a fixed one, drops the sound with --no-audio, and checks that the
/// output can hold the video.
void fit_to_model(const models::ModelSpec& spec, RunOptions& run, models::Latents& latents) {
  if (!spec.takes_frame_rate) run.video.fps = spec.defaults.fps;
  if (run.no_audio) latents.sound.reset();
  check_encoding(run.output, latents.video.size(4) * spec.stride[2], latents.video.size(3) * spec.stride[1], run.video,
                 latents.sound.defined() ? sound_format(spec, false) : SoundFormat());
}

void decode(const std::filesystem::path& latents, const Settings& settings, RunReport& report) {
  const auto start = std::chrono::steady_clock::now();
  RunOptions run = read_run_options(settings);
  SavedLatents saved = load_latents(latents);
  nlohmann::json recipe = saved_recipe(saved.recipe);
  run.video.fps = frame_rate_of(settings, recipe, run.video.fps);
  if (recipe.contains("prompt")) run.with_images = recipe.contains("image") || recipe.contains("last_image");
  models::Request request = read_request(settings, Command::decode);
  request.dtype = dtype_of(settings, recipe, request);
  check_outputs(settings, run, latents);
  if (run.threads) models::set_threads(static_cast<int>(*run.threads));
  const auto pipeline = models::Pipeline::open(open_and_say(run), request);
  const models::ModelSpec& spec = pipeline->spec();
  say_terms(run, spec);
  fit_to_model(spec, run, saved.latents);
  report.content["model"] = std::filesystem::canonical(run.model).string();

  Progress progress(!run.quiet);
  progress.stage("decode");
  models::reset_peak_memory(pipeline->device());
  set_encoding(recipe, run);
  set_no_audio(recipe, run.no_audio && spec.sound.any());
  set_attribution(recipe, spec);
  const auto decoded_recipe = [&](bool tiled) {
    set_tiling(recipe, tiled);
    return dump(recipe);
  };
  FrameWriter writer(run, {.recipe = decoded_recipe, .caption = saved_text(recipe, "prompt")});
  DecodedRun shown(progress, writer);
  models::Run watched;
  watched.cancelled = interrupted;
  watched.observer = &shown;
  const models::Decoded decoded = pipeline->decode(saved.latents, request.vae_tiling, watched);
  const models::VideoShape& shape = decoded.facts.shape;
  progress.stage("write");
  const WrittenVideo written = writer.finish();
  progress.clear();

  std::vector<std::string> warnings = no_effect_warnings(settings, no_effect_on(run, settings, spec));
  if (!decoded.warning.empty()) warnings.push_back(decoded.warning);
  for (std::string& wrong : defects(decoded.facts, written.sound)) warnings.push_back(std::move(wrong));
  for (const std::string& warning : {written.note, recipe_warning(recipe, *pipeline)})
    if (!warning.empty()) warnings.push_back(warning);
  const double seconds = seconds_since(start);
  if (!pipeline->part_files().empty()) report.content["files"] = models::shown(pipeline->part_files());
  report.content["recipe"] = recipe;
  report.content["device"] = pipeline->device().str();
  report.content["seconds"] = {{"total", seconds}};
  if (decoded.sound_seconds > 0) report.content["seconds"]["decode_sound"] = decoded.sound_seconds;
  report.content["warnings"] = warnings;
  add_output_report(report.content, run, shape, written);
  report.content["memory"] = memory_report(pipeline->device(), {.decode = models::peak_memory(pipeline->device())});
  print_warnings(warnings);
  report.last_line = video_text(run, shape) + sound_text(written.sound) + ", decoded in " + duration_text(seconds);
  if (run.verbose)
    report.last_line += "\n  " + counted(shape.frames, "frame") + ", " + memory_summary(report.content["memory"]);
}

}  // namespace

void add_decode(CLI::App& program, CommandLine& line) {
  CLI::App* command = program.add_subcommand("decode", "Makes a video from the latents that --save-latents kept");
  command->footer("sparsereel decode clip.safetensors -o clip.mp4");
  const auto latents = std::make_shared<std::string>();
  constexpr const char* kManual = R"(Names a file of --save-latents, or a file that a failed run kept: a .safetensors
      with the tensor `latents`. The file's recipe goes into the video. Give -m unless the latents are the tiny
      model's.)";
  command
      ->add_option("LATENTS", *latents,
                   packed({.help = "file with the latents (.safetensors)",
                           .manual = kManual,
                           .example = "sparsereel decode clip.safetensors -o again.mp4 --vae-tiling on"}))
      ->type_name("FILE")
      ->required();
  add_shared_options(*command, line, Command::decode);
  command->callback([&line, latents] {
    line.collect();
    const Reservations reservations = choose_output(line.settings, 1);
    check_files({line.settings}, line.config, *latents);
    line.start("decode");
    decode(*latents, line.settings, line.report);
  });
}

}  // namespace sparsereel::app
