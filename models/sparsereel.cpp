// The library's boundary: plain types become a pipeline's, and every exception becomes a Failure.
#include "models/sparsereel.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <tuple>
#include <utility>

#include "attention/attention.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/configs/config_file.h"
#include "models/configs/data_folder.h"
#include "models/configs/model_of_files.h"
#include "models/configs/presets.h"
#include "models/configs/tuned_profile.h"
#include "models/engine/failure.h"
#include "models/engine/frames.h"
#include "models/engine/rank_threads.h"
#include "models/engine/request.h"
#include "models/image/images.h"
#include "models/image/resample.h"
#include "models/layers/cpu_threads.h"
#include "models/text/unicode.h"
#include "models/video/fields.h"
#include "models/weights/device.h"

static_assert(std::array{SPARSEREEL_VERSION_MAJOR, SPARSEREEL_VERSION_MINOR, SPARSEREEL_VERSION_PATCH} ==
                  std::array{SPARSEREEL_PROJECT_VERSION},
              "sparsereel.h and CMakeLists.txt name different versions");

namespace sparsereel {
namespace {

/// ": some-model, fp16, 28.6 GB (transformer a.safetensors); ...": the ways out of an error that has several.
std::string listed(const std::vector<ErrorChoice>& choices) {
  std::string text;
  for (const ErrorChoice& choice : choices) {
    text += (text.empty() ? ": " : "; ") + choice.group + (choice.group.empty() ? "" : ", ") + choice.title + " (";
    for (const auto& [field, value] : choice.values) text += (text.back() == '(' ? "" : ", ") + field + " " + value;
    text += ")";
  }
  return text;
}

/// Runs `action` in inference mode and with all threads; what it throws leaves as a Failure.
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

using Texts = std::map<std::string, std::string>;

/// A member that is set, as options have its value.
void add(Texts& texts, const char* name, const std::string& value) {
  if (!value.empty()) texts[name] = value;
}
void add(Texts& texts, const char* name, uint64_t value) {
  texts[name] = std::to_string(value);
}
void add(Texts& texts, const char* name, const std::vector<double>& numbers) {
  if (!numbers.empty()) texts[name].clear();
  for (const double number : numbers) texts[name] += (texts[name].empty() ? "" : ",") + exact_text(number);
}
void add(Texts& texts, const char* name, const std::optional<std::string>& value) {
  if (value) texts[name] = *value;
}
void add(Texts& texts, const char* name, const std::optional<bool>& value) {
  if (value) texts[name] = *value ? "true" : "false";
}
void add(Texts& texts, const char* name, const std::optional<int64_t>& value) {
  if (value) texts[name] = std::to_string(*value);
}
void add(Texts& texts, const char* name, const std::optional<double>& value) {
  if (value) texts[name] = exact_text(*value);
}

Texts texts_of(const VideoRequest& request) {
  Texts texts;
  add(texts, "prompt", request.prompt);
  add(texts, "negative_prompt", request.negative_prompt);
  add(texts, "seed", request.seed);
  add(texts, "steps", request.steps);
  add(texts, "width", request.width);
  add(texts, "height", request.height);
  add(texts, "size", request.size);
  add(texts, "frames", request.frames);
  add(texts, "seconds", request.seconds);
  add(texts, "resize", request.resize);
  add(texts, "max_sequence_length", request.max_sequence_length);
  add(texts, "cfg_scale", request.cfg_scale);
  add(texts, "cfg_scale_2", request.cfg_scale_2);
  add(texts, "guidance_passes", request.guidance_passes);
  add(texts, "dynamic_cfg", request.dynamic_cfg);
  add(texts, "scheduler", request.scheduler);
  add(texts, "flow_shift", request.flow_shift);
  add(texts, "sigmas", request.sigmas);
  add(texts, "attention", request.attention);
  add(texts, "topk", request.topk);
  add(texts, "cdf", request.cdf);
  add(texts, "error", request.error);
  add(texts, "block_error", request.block_error);
  add(texts, "similarity", request.similarity);
  add(texts, "pv_threshold", request.pv_threshold);
  add(texts, "dropped", request.dropped);
  add(texts, "select", request.select);
  add(texts, "cell", request.cell);
  add(texts, "arithmetic", request.arithmetic);
  add(texts, "dense_steps", request.dense_steps);
  add(texts, "dense_layers", request.dense_layers);
  add(texts, "token_order", request.token_order);
  add(texts, "cache", request.cache);
  add(texts, "vae_tiling", request.vae_tiling);
  add(texts, "preset", request.preset);
  add(texts, "profile", request.profile);
  return texts;
}

/// Of the model's file, with "size" as its two sides where it has them.
Texts file_defaults(const models::ModelConfig& config, const models::PresetChoice& preset) {
  Texts defaults = models::defaults_of(config, preset).values;
  const auto size = defaults.find("size");
  if (size == defaults.end() || models::find_frame_area(size->second)) return defaults;
  std::tie(defaults["width"], defaults["height"]) = models::width_and_height(size->second);
  defaults.erase(size);
  return defaults;
}

/// A profile that holds: there is none beside attention full, with which alone a run is exact.
struct HeldProfile {
  attention::Profile content;
  models::TunedProfile tuned;
};

std::optional<HeldProfile> profile_of(const Texts& given) {
  const auto file = given.find("profile"), attention = given.find("attention");
  const std::string mode = attention == given.end() ? "" : attention->second;
  if (file == given.end() || mode == "full") return {};
  HeldProfile profile{.content = models::read_profile(file->second), .tuned = {}};
  profile.tuned = models::describe_profile(file->second, profile.content);
  const bool for_all_heads =
      std::ranges::any_of(models::kHowManyBlocks, [&](const char* name) { return given.contains(name); });
  if (for_all_heads || mode == "quantized") profile.tuned.heads = {};
  return profile;
}

/// The value of a field that decides the picture, unless a stronger one stands there or excludes it.
void read_weaker(const std::string& name, const std::string& value, const Texts& stronger, models::Request& request) {
  const models::Field* field = models::find_field(name);
  if (field == nullptr || field->decides == models::Decides::pipeline || stronger.contains(name)) return;
  if (!models::is_excluded(name, value, stronger)) field->read(request, value);
}

/// What is asked for: what is given, for what that leaves open the profile, and for the rest the model's file.
models::Request request_of(const Texts& given, const std::optional<HeldProfile>& profile,
                           const models::ModelConfig& config, const models::ModelSpec& spec) {
  models::refuse_contradictions(given);
  models::Request request = models::read_request(given);
  Texts stronger = given;
  if (profile) {
    const Texts options = models::options_of(profile->content, profile->tuned.file);
    for (const auto& [name, value] : options) read_weaker(name, value, given, request);
    stronger.insert(options.begin(), options.end());
  }
  const Texts defaults = file_defaults(config, models::choose_preset(config, given, spec.defaults.steps));
  if (const auto fps = defaults.find("fps"); fps != defaults.end()) request.fps = parse_number<double>(fps->second);
  try {
    models::refuse_contradictions(defaults);
    for (const auto& [name, value] : defaults) read_weaker(name, value, stronger, request);
  } catch (const Error& error) {
    throw bad_file(config.file.string(), error.what(), "correct it there");
  }
  if (profile && profile->tuned.by_head()) models::use_heads(profile->content, request);
  return request;
}

/// What to warn of beside a profile.
std::vector<std::string> profile_warnings(const Texts& given, const std::optional<HeldProfile>& profile,
                                          const models::Plan& plan) {
  if (!given.contains("profile")) return {};
  if (!profile) return {"profile " + given.at("profile") + " has no effect with attention full"};
  std::vector<std::string> warnings;
  if (std::string other = models::profile_warning(profile->tuned, plan); !other.empty())
    warnings.push_back(std::move(other));
  const auto weights = profile->content.settings.find("weights");
  const std::string own = plan.fp8_weights ? "fp8" : "auto";
  if (weights != profile->content.settings.end() && weights->second != own)
    warnings.push_back("profile " + given.at("profile") + " asks for weights " + weights->second +
                       ", which this model was opened without");
  return warnings;
}

/// Null where there is none. `field`: the request's.
std::shared_ptr<const models::Picture> picture_of(const ImageView& view, const char* field) {
  if (view.pixels == nullptr) return {};
  if (view.height < 1 || view.width < 1 || view.height > models::kMostImagePixels / view.width)
    throw bad_option(field, "of " + std::to_string(view.width) + "x" + std::to_string(view.height) + " is impossible",
                     "give 1 to " + std::to_string(models::kMostImagePixels / 1'000'000) + " million pixels");
  const int64_t bytes = view.height * view.width * 3;
  return std::make_shared<const models::Picture>(
      models::Picture{.height = view.height, .width = view.width, .pixels = {view.pixels, view.pixels + bytes}});
}

/// Adds what the request has to know of its images, which have no files.
models::Images images_of(const VideoRequest& request, models::Request& asked) {
  models::Images images = {.first = picture_of(request.image, "image"),
                           .last = picture_of(request.last_image, "last_image")};
  if (images.first) asked.image = "pixels";
  if (images.last) asked.last_image = "pixels";
  if (images.first && !request.width && !request.height)
    asked.image_size = {.height = request.image.height, .width = request.image.width};
  return images;
}

/// A warning for each member that has no effect beside the others.
std::vector<std::string> idle_members(const Texts& given, const models::Request& request, const models::Plan& plan,
                                      const std::optional<HeldProfile>& profile, const models::ModelSpec& spec) {
  using models::Idle;
  const std::string mode(attention::name(plan.attention_mode));
  const std::string guidance =
      given.contains("cfg_scale") ? "cfg_scale " + given.at("cfg_scale") : "the model's default";
  const std::pair<Idle, std::string> causes[] = {
      {Idle::every_block, models::why_idle(plan.attention_mode, "attention " + mode)},
      {Idle::no_means, models::why_idle(plan.attention_policy, "dropped none")},
      {Idle::in_fp32, models::why_idle_arithmetic(at::Device(plan.device))},
      {Idle::one_transformer, models::why_idle_second_scale(spec)},
      {Idle::no_guidance, models::why_idle_without_guidance(plan.guidance_scale, guidance)},
      {Idle::no_image, request.image.empty() ? "without an image" : ""},
      {Idle::no_flow, models::why_no_flow(request, spec)},
      {Idle::no_reuse, models::why_idle_cache(request, spec)},
      {Idle::profile, profile && profile->tuned.by_head() ? "with the profile, which has a policy for each head" : ""}};
  std::vector<std::string> warnings;
  for (const models::Field& field : models::fields()) {
    const auto value = given.find(field.name);
    if (value == given.end() || value->second.empty() || value->second == field.nothing || value->second == "false")
      continue;
    const auto cause = std::ranges::find_if(causes, [&](const auto& each) {
      return !each.second.empty() && std::ranges::find(field.idle, each.first) != field.idle.end();
    });
    if (cause != std::end(causes))
      warnings.push_back(field.name + " " + value->second + " has no effect " + cause->second);
  }
  return warnings;
}

/// Passes steps on to the caller and remembers why it wants no more.
class Watcher {
 public:
  explicit Watcher(const StepCallback& callback) : callback_(callback) {}

  models::Run run() {
    models::Run run;
    run.step = [this](int64_t step, int64_t steps, double) { notify(step, steps); };
    run.cancelled = [this] { return stopped_; };
    return run;
  }
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

/// One call of an object. Throws Error where another one is under way.
class OneAtATime {
 public:
  explicit OneAtATime(std::atomic<bool>& is_busy) : is_busy_(is_busy) {
    if (is_busy_.exchange(true))
      throw bad_input("this TextToVideo is making another video",
                      "make one after the other, or open the model a second time");
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
  video.sparsity = result.attention.statistics.sparsity();
  video.mean_share = result.attention.statistics.mean_share();
  video.defect = models::defect(result.facts);
  video.warnings = result.warnings;
  if (const std::string other = models::frame_count_warning(plan, spec); !other.empty())
    video.warnings.push_back(other);
  if (!video.defect.empty()) video.warnings.push_back("the video " + video.defect);
  return video;
}

/// Where the known models' YAML is, `asked` or our own.
std::filesystem::path configs_folder(const std::string& asked) {
  if (asked.empty()) return models::data_folder() / "configs";
  std::error_code error;
  if (!std::filesystem::is_directory(asked, error))
    throw bad_option("configs", asked + " is no folder", "give the folder of the YAML files, or none for our own");
  return asked;
}

models::Request pipeline_of(const ModelOptions& options) {
  return {.device = options.device,
          .dtype = options.dtype,
          .weights = options.weights,
          .text_weights = options.text_weights,
          .offload = options.offload,
          .files = {{"transformer", options.transformer},
                    {"transformer_2", options.transformer_2},
                    {"vae", options.vae},
                    {"text_encoder", options.text_encoder},
                    {"image_encoder", options.image_encoder},
                    {"tokenizer", options.tokenizer}},
          .loras = models::parse_loras(options.lora)};
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
  std::unique_ptr<models::RankThreads> ranks;  // whose first it is; null: it makes videos alone
  models::ModelConfig config;                  // that fits the model; without defaults where none does
  std::vector<std::string> warnings;           // of every video
  std::atomic<bool> is_busy = false;           // with a video
};

TextToVideo::TextToVideo(const std::string& model, const ModelOptions& options) {
  guarded([&] {
    if (options.threads != 0) models::check_threads(options.threads);
    const std::filesystem::path configs = configs_folder(options.configs);
    models::Request request = pipeline_of(options);
    std::vector<std::shared_ptr<models::Pipeline>> pipelines;
    for (const std::string& device : models::devices_of_threads(options.gpus, options.device)) {
      request.device = device;
      pipelines.push_back(models::Pipeline::open(
          models::open_model(model.empty() ? options.transformer : model, request.files, configs), request));
    }
    auto pipeline = pipelines.front();
    if (options.threads != 0) models::set_threads(options.threads);
    std::vector<std::string> warnings = pipeline->weight_warnings();
    if (const std::string why = models::why_idle_offload(pipeline->device()); options.offload && !why.empty())
      warnings.push_back("offload has no effect " + why);
    if (!pipeline->why_idle_weights().empty())
      warnings.push_back("weights fp8 has no effect " + pipeline->why_idle_weights());
    if (!pipeline->why_idle_text_weights().empty())
      warnings.push_back("text_weights fp8 has no effect " + pipeline->why_idle_text_weights());
    if (std::string missing = models::missing_configs_warning(configs); !missing.empty())
      warnings.push_back(std::move(missing));
    auto config = models::find_model_config(configs, pipeline->spec());
    auto ranks = pipelines.size() > 1 ? std::make_unique<models::RankThreads>(std::move(pipelines)) : nullptr;
    state_ = std::make_unique<State>();
    state_->pipeline = std::move(pipeline);
    state_->ranks = std::move(ranks);
    state_->config = std::move(config).value_or(models::ModelConfig{.file = configs});
    state_->warnings = std::move(warnings);
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
      const Texts given = texts_of(request);
      const std::optional<HeldProfile> profile = profile_of(given);
      models::Request asked = request_of(given, profile, state_->config, pipeline.spec());
      const models::Images images = images_of(request, asked);
      if (profile) models::check_profile(profile->tuned, "the opened one", pipeline.model_hash(), pipeline.heads());
      const models::Plan plan = pipeline.resolve(asked, /*decode=*/true, state_->ranks ? state_->ranks->size() : 1);
      std::vector<std::string> warnings = state_->warnings;
      for (auto& all :
           {idle_members(given, asked, plan, profile, pipeline.spec()), profile_warnings(given, profile, plan)})
        warnings.insert(warnings.end(), all.begin(), all.end());
      const models::Inputs inputs = {.images = images, .keep_transformer = true};
      models::Outcome made = state_->ranks ? state_->ranks->generate(plan, inputs, watcher.run())
                                           : pipeline.generate(plan, inputs, watcher.run());
      Video video = video_of(made, plan, pipeline.spec());
      video.warnings.insert(video.warnings.begin(), warnings.begin(), warnings.end());
      return video;
    });
  } catch (const Failure&) {
    watcher.rethrow();
    throw;
  }
}

}  // namespace sparsereel
