// The library's boundary: plain types become a pipeline's, and every exception becomes a Failure.
#include "models/sparsereel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "attention/attention.h"
#include "hilbert/exact_text.h"
#include "models/configs/config_file.h"
#include "models/configs/data_folder.h"
#include "models/engine/failure.h"
#include "models/engine/frames.h"
#include "models/engine/request.h"
#include "models/text/unicode.h"
#include "models/weights/device.h"

static_assert(std::array{SPARSEREEL_VERSION_MAJOR, SPARSEREEL_VERSION_MINOR, SPARSEREEL_VERSION_PATCH} ==
                  std::array{SPARSEREEL_PROJECT_VERSION},
              "sparsereel.h and CMakeLists.txt name different versions");

namespace sparsereel {
namespace {

/// Runs `action` in inference mode; what it throws leaves as a Failure.
template <typename Action>
auto guarded(const Action& action) {
  try {
    const c10::InferenceMode mode;
    return action();
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    throw Failure(error.exit_code(), error.what(), error.remedy(), error.field());
  }
}

/// A member's value as options have it; empty where it is unset.
std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(double value) {
  return exact_text(value);
}
std::string text_of(int64_t value) {
  return std::to_string(value);
}
std::string text_of(bool flag) {
  return flag ? "true" : "false";
}
template <typename Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "";
}
std::string text_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += (text.empty() ? "" : ",") + text_of(number);
  return text;
}

/// The other way; false where the text is none of the member's kind.
bool read(const std::string& text, std::string& member) {
  member = text;
  return true;
}
bool read(const std::string& text, bool& member) {
  member = text == "true" || text == "on" || text == "yes";
  return member || text == "false" || text == "off" || text == "no";
}
template <typename Number>
bool read(const std::string& text, Number& member) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, member);
  return error == std::errc{} && stop == end;
}
template <typename Value>
bool read(const std::string& text, std::optional<Value>& member) {
  return read(text, member.emplace());
}
bool read(const std::string& text, std::vector<double>& member) {
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ',');)
    if (!read(piece, member.emplace_back())) return false;
  return !member.empty();
}

/// Every member that a file of configs/ may set, by the option's name.
template <typename Visitor>
void visit_members(VideoRequest& request, const Visitor& visit) {
  visit("negative_prompt", request.negative_prompt);
  visit("steps", request.steps);
  visit("width", request.width);
  visit("height", request.height);
  visit("frames", request.frames);
  visit("max_sequence_length", request.max_sequence_length);
  visit("cfg_scale", request.cfg_scale);
  visit("cfg_scale_2", request.cfg_scale_2);
  visit("guidance_passes", request.guidance_passes);
  visit("dynamic_cfg", request.dynamic_cfg);
  visit("scheduler", request.scheduler);
  visit("flow_shift", request.flow_shift);
  visit("sigmas", request.sigmas);
  visit("attention", request.attention);
  visit("topk", request.topk);
  visit("cdf", request.cdf);
  visit("error", request.error);
  visit("similarity", request.similarity);
  visit("pv_threshold", request.pv_threshold);
  visit("dropped", request.dropped);
  visit("select", request.select);
  visit("cell", request.cell);
  visit("dense_steps", request.dense_steps);
  visit("dense_layers", request.dense_layers);
  visit("token_order", request.token_order);
  visit("cache", request.cache);
  visit("vae_tiling", request.vae_tiling);
}

using Texts = std::map<std::string, std::string>;

/// Whether what was given leaves no place for this value.
bool is_excluded(const std::string& option, const std::string& value, const Texts& given) {
  const auto is = [](std::string_view wanted, std::string_view text) { return wanted.empty() || wanted == text; };
  const auto is_given = [&](std::string_view other, std::string_view wanted) {
    const auto found = given.find(std::string(other));
    return found != given.end() && is(wanted, found->second);
  };
  return std::ranges::any_of(models::exclusions(), [&](const models::Exclusion& each) {
    return (each.first == option && is(each.first_value, value) && is_given(each.second, each.second_value)) ||
           (each.second == option && is(each.second_value, value) && is_given(each.first, each.first_value));
  });
}

/// The request with what it leaves open filled in from the model's file.
VideoRequest with_defaults(const VideoRequest& request, const models::ModelConfig& config) {
  Texts defaults = models::defaults_of(config, request.preset.empty() ? models::kNoPreset : request.preset).values;
  if (const auto size = defaults.find("size"); size != defaults.end())
    std::tie(defaults["width"], defaults["height"]) = models::width_and_height(size->second);
  VideoRequest result = request;
  Texts given;
  visit_members(result, [&](const char* option, const auto& member) {
    if (const std::string text = text_of(member); !text.empty()) given[option] = text;
  });
  visit_members(result, [&](const char* option, auto& member) {
    const auto found = defaults.find(option);
    if (found == defaults.end() || given.contains(option) || is_excluded(option, found->second, given)) return;
    if (!read(found->second, member))
      throw bad_file(config.file.string(), std::string(option) + " " + found->second + " is no value of it",
                     "correct it there");
  });
  return result;
}

/// A warning for each member that has no effect beside the others.
std::vector<std::string> idle_members(const VideoRequest& from, const models::GenerateRequest& request,
                                      const models::ModelSpec& spec, double guidance_scale) {
  std::vector<std::string> warnings;
  const auto add = [&warnings](const char* member, const auto& value, const std::string& why) {
    const std::string given = text_of(value);
    if (!given.empty() && given != "false" && given != "0" && !why.empty())
      warnings.push_back(std::string(member) + " " + given + " has no effect " + why);
  };
  const std::string mode(attention::name(request.attention_mode));
  const std::string selection = models::why_idle(request.attention_mode, "attention " + mode);
  add("topk", from.topk, selection);
  add("cdf", from.cdf, selection);
  add("error", from.error, selection);
  add("dropped", from.dropped, selection);
  add("select", from.select, selection);
  add("cell", from.cell, selection.empty() ? models::why_idle(request.attention_policy, "dropped none") : selection);
  add("similarity", from.similarity, selection);
  add("pv_threshold", from.pv_threshold, selection);
  add("dense_steps", from.dense_steps, selection);
  add("dense_layers", from.dense_layers, selection);
  const std::string guidance = models::why_idle_without_guidance(
      guidance_scale, from.cfg_scale ? "cfg_scale " + text_of(from.cfg_scale) : "the model's default");
  add("negative_prompt", from.negative_prompt, guidance);
  const std::string one_transformer = models::why_idle_second_scale(spec);
  add("cfg_scale_2", from.cfg_scale_2, one_transformer.empty() ? guidance : one_transformer);
  add("guidance_passes", from.guidance_passes, guidance);
  add("dynamic_cfg", from.dynamic_cfg, guidance);
  const std::string no_flow = models::why_idle_flow_shift(request, spec);
  add("flow_shift", from.flow_shift, no_flow);
  add("sigmas", from.sigmas, no_flow);
  add("cache", from.cache, models::why_idle_cache(request, spec));
  return warnings;
}

attention::Mode mode_of(const std::string& text, const models::Pipeline& pipeline) {
  std::optional<attention::Mode> asked;
  if (!text.empty()) asked = attention::parse_mode(text);
  return models::choose_attention_mode(asked, pipeline.device(), pipeline.dtype());
}

attention::Policy policy_of(const VideoRequest& from) {
  models::PolicyOptions options{.topk = from.topk,
                                .cdf = from.cdf,
                                .error = from.error,
                                .similarity = from.similarity,
                                .pv_threshold = from.pv_threshold,
                                .cell = from.cell,
                                .dense_steps = from.dense_steps,
                                .dense_layers = from.dense_layers};
  if (!from.dropped.empty()) options.dropped = attention::parse_dropped(from.dropped);
  if (!from.select.empty()) options.ranking = attention::parse_ranking(from.select);
  return models::make_policy(options);
}

models::GenerateRequest request_of(const VideoRequest& from, const models::Pipeline& pipeline) {
  if (models::is_blank(from.prompt)) throw bad_option("prompt", "is empty", "say what to show");
  models::GenerateRequest request;
  request.prompt = from.prompt;
  request.negative_prompt = from.negative_prompt;
  request.seed = from.seed;
  request.num_inference_steps = from.steps;
  request.guidance_scale = from.cfg_scale;
  request.guidance_scale_2 = from.cfg_scale_2;
  if (!from.guidance_passes.empty()) request.guidance_passes = models::parse_guidance_passes(from.guidance_passes);
  request.flow_shift = from.flow_shift;
  request.sigmas = from.sigmas;
  request.use_dynamic_cfg = from.dynamic_cfg.value_or(false);
  request.scheduler = from.scheduler;
  request.max_sequence_length = from.max_sequence_length;
  request.width = from.width;
  request.height = from.height;
  request.num_frames = from.frames;
  request.attention_mode = mode_of(from.attention, pipeline);
  request.attention_policy = policy_of(from);
  if (!from.token_order.empty()) request.token_order = hilbert::parse_token_order(from.token_order);
  if (!from.cache.empty()) request.cache = models::parse_cache_rule(from.cache);
  if (!from.vae_tiling.empty()) request.vae_tiling = models::parse_vae_tiling(from.vae_tiling);
  request.keep_transformer = true;
  return request;
}

/// Passes steps on to the caller and remembers why it wants no more.
class Watcher {
 public:
  explicit Watcher(const StepCallback& callback) : callback_(callback) {}

  models::GenerateObserver observer() {
    models::GenerateObserver observer;
    observer.step = [this](int64_t step, int64_t steps, double) { notify(step, steps); };
    observer.cancelled = [this] { return stopped_; };
    return observer;
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

Video video_of(const models::GenerateResult& result) {
  const at::Tensor frames = result.frames.contiguous();
  Video video{.frames = frames.size(0), .height = frames.size(1), .width = frames.size(2)};
  const auto* pixels = frames.const_data_ptr<float>();
  video.pixels.assign(pixels, pixels + frames.numel());
  video.sparsity = result.attention.statistics.sparsity();
  video.mean_share = result.attention.statistics.mean_share();
  video.defect = models::defect(frames);
  video.warnings = result.warnings;
  if (const std::string other = models::frame_count_warning(result.settings); !other.empty())
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
  models::ModelConfig config;         // that fits the model; without defaults where none does
  std::vector<std::string> warnings;  // of every video
};

TextToVideo::TextToVideo(const std::string& folder, const ModelOptions& options) {
  guarded([&] {
    if (options.threads != 0) models::check_threads(options.threads);
    auto pipeline =
        models::Pipeline::open(models::ModelFolder::open(folder), {.device = options.device,
                                                                   .dtype = options.dtype,
                                                                   .weights = options.weights,
                                                                   .text_weights = options.text_weights,
                                                                   .offload = options.offload,
                                                                   .loras = models::parse_loras(options.lora)});
    if (options.threads != 0) at::set_num_threads(options.threads);
    std::vector<std::string> warnings;
    if (const std::string why = models::why_idle_offload(pipeline->device()); options.offload && !why.empty())
      warnings.push_back("offload has no effect " + why);
    if (!pipeline->why_idle_weights().empty())
      warnings.push_back("weights fp8 has no effect " + pipeline->why_idle_weights());
    if (!pipeline->why_idle_text_weights().empty())
      warnings.push_back("text_weights fp8 has no effect " + pipeline->why_idle_text_weights());
    const std::filesystem::path configs = configs_folder(options.configs);
    if (std::string missing = models::missing_configs_warning(configs); !missing.empty())
      warnings.push_back(std::move(missing));
    auto config = models::find_model_config(configs, pipeline->spec());
    state_ = std::make_unique<State>(State{
        std::move(pipeline), std::move(config).value_or(models::ModelConfig{.file = configs}), std::move(warnings)});
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
      models::Pipeline& pipeline = *state_->pipeline;
      const models::GenerateRequest asked = request_of(with_defaults(request, state_->config), pipeline);
      const models::GenerateResult result = pipeline.generate(asked, watcher.observer());
      std::vector<std::string> warnings = state_->warnings;
      for (std::string& idle : idle_members(request, asked, pipeline.spec(), result.settings.guidance_scale))
        warnings.push_back(std::move(idle));
      Video video = video_of(result);
      video.warnings.insert(video.warnings.begin(), warnings.begin(), warnings.end());
      return video;
    });
  } catch (const Failure&) {
    watcher.rethrow();
    throw;
  }
}

}  // namespace sparsereel
