// Implements the public header: converts its plain types to a pipeline's types, and every exception to a Failure.
#include "models/sparsereel.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "attention/attention.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/engine/device_choices.h"
#include "models/engine/failure.h"
#include "models/engine/frames.h"
#include "models/engine/rank_threads.h"
#include "models/files/unicode.h"
#include "models/image/images.h"
#include "models/image/resample.h"
#include "models/layers/cpu_threads.h"
#include "models/public_members.h"
#include "models/request/effects.h"
#include "models/request/fields.h"
#include "models/request/outcome.h"
#include "models/request/request.h"
#include "models/request/resolve.h"
#include "models/request/run.h"
#include "models/store/configs/config_file.h"
#include "models/store/configs/data_folder.h"
#include "models/store/configs/model_of_files.h"
#include "models/store/weights/device.h"

static_assert(std::array{SPARSEREEL_VERSION_MAJOR, SPARSEREEL_VERSION_MINOR, SPARSEREEL_VERSION_PATCH} ==
                  std::array{SPARSEREEL_PROJECT_VERSION},
              "sparsereel.h and CMakeLists.txt name different versions");

namespace sparsereel {
namespace {

/// Lists the choices that would avoid an error: ": some-model, fp16, 28.6 GB (transformer a.safetensors); ..."
std::string listed(const std::vector<ErrorChoice>& choices) {
  std::string text;
  for (const ErrorChoice& choice : choices) {
    text += (text.empty() ? ": " : "; ") + choice.group + (choice.group.empty() ? "" : ", ") + choice.title + " (";
    for (const auto& [field, value] : choice.values) text += (text.back() == '(' ? "" : ", ") + field + " " + value;
    text += ")";
  }
  return text;
}

/// Runs `action` in inference mode with all threads, and converts what it throws to a Failure.
template <typename Action>
auto guarded(const Action& action) {
  try {
    const c10::InferenceMode mode;
    const models::AllThreads threads;
    return action();
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    throw Failure(models::exit_code(error.kind()), error.what(), error.remedy() + listed(error.choices()),
                  error.field());
  }
}

using Texts = models::MemberTexts;

models::Settings settings_of(const Texts& given) {
  models::Settings settings(models::member_options());
  settings.add(models::Source::command_line, given);
  return settings;
}

/// Adds the values of the profile, then the values of the file that describes the model.
models::Settings completed(models::Settings settings, const models::ModelConfig& config,
                           const models::ModelSpec& spec) {
  models::add_profile(settings);
  settings.set_fallbacks(spec.defaults);
  settings.set_model_config(config);
  settings.add_model_config(models::PresetUse::whole);
  return settings;
}

/// If the value at fault comes from the model's YAML file, adds its line and column to the error.
Error with_place_in_file(const models::Settings& settings, const Error& error) {
  const models::Setting* setting = error.field().empty() ? nullptr : settings.find(error.field());
  return setting != nullptr && setting->source <= models::Source::distilled ? settings.with_place(error) : error;
}

std::vector<std::string> profile_warnings(const models::Settings& settings,
                                          const std::optional<models::TunedProfile>& profile,
                                          const models::Plan& plan) {
  if (!profile) return {};
  std::vector<std::string> warnings;
  if (std::string other = models::profile_warning(*profile, plan); !other.empty()) warnings.push_back(std::move(other));
  const models::Setting* weights = settings.find("weights");
  if (weights != nullptr && weights->value != plan.weights)
    warnings.push_back(settings.describe("profile") + " asks for weights " + weights->value +
                       ", but the model was opened with weights " + plan.weights + ": set ModelOptions::weights");
  return warnings;
}

/// Copies the picture, or returns null if there is none. Errors name `field`, the request's member.
std::shared_ptr<const models::Picture> picture_of(const ImageView& view, const char* field) {
  if (view.pixels == nullptr) return {};
  if (view.height < 1 || view.width < 1 || view.height > models::kMostImagePixels / view.width)
    throw bad_option(field, "of " + std::to_string(view.width) + "x" + std::to_string(view.height) + " is impossible",
                     "give 1 to " + std::to_string(models::kMostImagePixels / 1'000'000) + " million pixels");
  const int64_t bytes = view.height * view.width * 3;
  return std::make_shared<const models::Picture>(
      models::Picture{.height = view.height, .width = view.width, .pixels = {view.pixels, view.pixels + bytes}});
}

/// Returns copies of the request's images and sets the members of `asked` that depend on them.
models::Images images_of(const VideoRequest& request, models::Request& asked) {
  models::Images images = {.first = picture_of(request.image, "image"),
                           .last = picture_of(request.last_image, "last_image")};
  if (images.first) asked.image = "pixels";
  if (images.last) asked.last_image = "pixels";
  if (const Texts given = models::texts_of(request);
      images.any() && !given.contains("width") && !given.contains("height")) {
    const ImageView& shape = images.first ? request.image : request.last_image;
    asked.image_size = {.height = shape.height, .width = shape.width};
  }
  return images;
}

struct Resolved {
  models::Request request;
  models::Plan plan;
  models::Images images;
  std::vector<std::string> warnings;
};

Resolved resolve(const models::Settings& settings, const VideoRequest& request, const models::Pipeline& pipeline,
                 int64_t ranks) {
  Resolved resolved;
  try {
    models::Request& asked = resolved.request = models::read_request(settings);
    asked.fps = settings.number("fps");
    std::optional<models::TunedProfile> profile = models::apply_profile(settings, asked);
    resolved.images = images_of(request, asked);
    const attention::Mode mode =
        models::choose_attention_mode(asked.attention_mode, pipeline.device(), pipeline.dtype());
    if (models::is_exact(settings, mode)) profile.reset();
    if (profile) models::check_profile(*profile, "the opened one", pipeline.model_hash(), pipeline.heads());
    resolved.plan = pipeline.resolve(asked, /*decode=*/true, ranks);
    const models::RunFacts facts = {.settings = &settings,
                                    .request = &asked,
                                    .model = &pipeline.spec(),
                                    .attention_mode = mode,
                                    .is_by_head = profile && profile->by_head(),
                                    .on_cpu = pipeline.device().is_cpu()};
    std::vector<models::NoEffectCause> causes = models::no_effect_causes(models::kDecidedByRun, facts);
    std::ranges::move(models::no_effect_causes(models::kDecidedByModel, facts), std::back_inserter(causes));
    std::ranges::move(models::no_effect_causes(models::kDecidedByRequest, facts), std::back_inserter(causes));
    resolved.warnings = models::no_effect_warnings(settings, causes);
    std::ranges::move(profile_warnings(settings, profile, resolved.plan), std::back_inserter(resolved.warnings));
    if (std::string hint = settings.distilled_warning(); !hint.empty()) resolved.warnings.push_back(std::move(hint));
  } catch (const Error& error) {
    throw with_place_in_file(settings, error);
  }
  return resolved;
}

/// Passes each step to the callback. Remembers whether the callback stopped the run, and what the callback threw.
class Watcher final : public models::RunObserver {
 public:
  explicit Watcher(const StepCallback& callback) : callback_(callback) {}

  models::Run run() {
    models::Run run;
    run.observer = this;
    run.cancelled = [this] { return stopped_; };
    return run;
  }
  void step(const models::StepDone& step) override { notify(step.step, step.steps); }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  void notify(int64_t step, int64_t steps) {
    if (!callback_ || stopped_) return;
    try {
      stopped_ = !callback_(step, steps);
    } catch (...) {
      thrown_ = std::current_exception();
      stopped_ = true;
    }
    if (stopped_) throw models::Cancelled{};
  }

  const StepCallback& callback_;
  bool stopped_ = false;
  std::exception_ptr thrown_;
};

/// Marks an object as busy while one call runs. Throws Error if another call on the object is running.
class OneAtATime {
 public:
  explicit OneAtATime(std::atomic<bool>& is_busy) : is_busy_(is_busy) {
    if (is_busy_.exchange(true))
      throw bad_input("this TextToVideo is making another video",
                      "make one video after the other, or open the model a second time");
  }
  ~OneAtATime() { is_busy_ = false; }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic<bool>& is_busy_;
};

Video video_of(const models::Outcome& result, const models::Plan& plan, const models::ModelSpec& spec) {
  const at::Tensor frames = result.frames.contiguous();
  Video video{.frames = frames.size(0), .height = frames.size(1), .width = frames.size(2)};
  const auto* pixels = frames.const_data_ptr<float>();
  video.pixels.assign(pixels, pixels + frames.numel());
  if (result.sound.samples.defined()) {
    const at::Tensor sound = result.sound.samples.contiguous();
    const auto* samples = sound.const_data_ptr<float>();
    video.sound.assign(samples, samples + sound.numel());
    video.channels = sound.size(0);
    video.sampling_rate = result.sound.sampling_rate;
  }
  video.sparsity = result.attention.statistics.sparsity();
  video.mean_share = result.attention.statistics.mean_share();
  video.defect = models::defect(result.facts);
  video.warnings = result.warnings;
  for (const std::string& other : {models::frame_count_warning(plan, spec), models::unusual_size_warning(plan, spec)})
    if (!other.empty()) video.warnings.push_back(other);
  if (!video.defect.empty()) video.warnings.push_back("the video " + video.defect);
  return video;
}

/// Returns `asked`, or the folder of the built-in configs if `asked` is empty.
std::filesystem::path configs_folder(const std::string& asked) {
  if (asked.empty()) return models::data_folder() / "configs";
  std::error_code error;
  if (!std::filesystem::is_directory(asked, error))
    throw bad_option("configs", asked + " is not a folder",
                     "give the folder of the YAML files, or leave it out for the built-in ones");
  return asked;
}

}  // namespace

Failure::Failure(int code, std::string cause, std::string remedy, std::string field)
    : std::runtime_error(cause + "\n  remedy: " + remedy),
      code_(code),
      cause_(std::move(cause)),
      remedy_(std::move(remedy)),
      field_(std::move(field)) {}

Failure::~Failure() = default;

struct TextToVideo::State {
  std::shared_ptr<models::Pipeline> pipeline;
  std::unique_ptr<models::RankThreads> ranks;  // ranks on several GPUs; rank 0 runs `pipeline`; null for one GPU
  models::ModelConfig config;         // from the YAML file that describes the model; no defaults without a file
  std::vector<std::string> warnings;  // repeated with every video
  std::string terms;                  // where to read the weights' license terms; empty after the first video
  std::atomic<bool> is_busy = false;  // a video is being made
};

TextToVideo::TextToVideo(const std::string& model, const ModelOptions& options) {
  guarded([&] {
    if (options.threads != 0) models::check_threads(options.threads);
    const std::filesystem::path configs = configs_folder(options.configs);
    const models::Settings settings = settings_of(models::texts_of(options));
    models::Request request = models::read_request(settings);
    std::vector<std::shared_ptr<models::Pipeline>> pipelines;
    for (const std::string& device : models::devices_of_threads(options.gpus, options.device)) {
      request.device = device;
      pipelines.push_back(models::Pipeline::open(
          models::open_model(model.empty() ? options.transformer : model, request.files, configs), request));
    }
    auto pipeline = pipelines.front();
    if (options.threads != 0) models::set_threads(options.threads);
    std::vector<std::string> warnings = pipeline->weight_warnings();
    const models::RunFacts facts = {.settings = &settings,
                                    .request = &request,
                                    .on_cpu = pipeline->device().is_cpu(),
                                    .narrow_blocks = pipeline->why_weights_have_no_effect(),
                                    .narrow_layers = pipeline->why_text_weights_have_no_effect()};
    const std::pair<models::NoEffect, std::string> choices[] = {
        {models::NoEffect::on_a_cpu, request.offload == models::Offload::on ? "offload" : "max_vram"},
        {models::NoEffect::narrow_blocks, "weights " + request.weights},
        {models::NoEffect::narrow_layers, "text_weights " + request.text_weights}};
    for (const auto& [cause, choice] : choices)
      if (const std::string why = models::why_no_effect(cause, facts); !why.empty())
        warnings.push_back(choice + " has no effect " + why);
    if (std::string missing = models::missing_configs_warning(configs); !missing.empty())
      warnings.push_back(std::move(missing));
    auto config = models::find_model_config(configs, pipeline->spec());
    state_ = std::make_unique<State>();
    state_->pipeline = std::move(pipeline);
    if (pipelines.size() > 1) state_->ranks = std::make_unique<models::RankThreads>(std::move(pipelines));
    state_->config = std::move(config).value_or(models::ModelConfig{.file = configs});
    models::keep_members(state_->config);
    for (const models::LoraChoice& lora : request.loras) state_->config.loras.push_back(lora.file);
    state_->warnings = std::move(warnings);
    state_->terms = models::terms_line(state_->pipeline->spec());
  });
}

TextToVideo::~TextToVideo() = default;
TextToVideo::TextToVideo(TextToVideo&&) noexcept = default;
TextToVideo& TextToVideo::operator=(TextToVideo&&) noexcept = default;

Video TextToVideo::generate(const VideoRequest& request, const StepCallback& step) {
  Watcher watcher(step);
  try {
    return guarded([&] {
      if (!state_) throw bad_input("this TextToVideo was moved from", "use the object that it was moved to");
      const OneAtATime call(state_->is_busy);
      models::Pipeline& pipeline = *state_->pipeline;
      if (models::is_blank(request.prompt)) throw bad_option("prompt", "is empty", "say what to show");
      const models::Settings settings =
          completed(settings_of(models::texts_of(request)), state_->config, pipeline.spec());
      const Resolved resolved = resolve(settings, request, pipeline, state_->ranks ? state_->ranks->size() : 1);
      std::vector<std::string> warnings = state_->warnings;
      warnings.insert(warnings.end(), resolved.warnings.begin(), resolved.warnings.end());
      const models::Inputs inputs = {.images = resolved.images, .keep_transformer = true};
      models::Outcome made = state_->ranks
                                 ? state_->ranks->generate(resolved.request, resolved.plan, inputs, watcher.run())
                                 : pipeline.generate(resolved.plan, inputs, watcher.run());
      Video video = video_of(made, resolved.plan, pipeline.spec());
      if (!state_->terms.empty()) warnings.insert(warnings.begin(), std::exchange(state_->terms, {}));
      video.warnings.insert(video.warnings.begin(), warnings.begin(), warnings.end());
      return video;
    });
  } catch (const Failure&) {
    watcher.rethrow();
    throw;
  }
}

}  // namespace sparsereel
