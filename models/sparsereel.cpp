// The library's boundary: plain types become a pipeline's, and every exception becomes a Failure.
#include "models/sparsereel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <map>
#include <sstream>
#include <utility>

#include "attention/attention.h"
#include "models/device.h"
#include "models/failure.h"
#include "models/frames.h"
#include "models/request.h"

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

/// What the request gives of the options that another one can make idle: key -> value.
std::map<std::string, std::string> given_options(const VideoRequest& request) {
  std::map<std::string, std::string> given;
  const auto add = [&given](const char* key, const auto& value) {
    std::ostringstream text;
    text << value;
    given[key] = text.str();
  };
  if (request.topk) add("topk", *request.topk);
  if (request.cdf) add("cdf", *request.cdf);
  if (request.error) add("error", *request.error);
  if (!request.dropped.empty()) add("dropped", request.dropped);
  if (!request.select.empty()) add("select", request.select);
  if (request.cell) add("cell", *request.cell);
  if (request.similarity) add("similarity", *request.similarity);
  if (request.pv_threshold) add("pv_threshold", *request.pv_threshold);
  if (request.dense_steps != 0) add("dense_steps", request.dense_steps);
  if (request.dense_layers != 0) add("dense_layers", request.dense_layers);
  if (request.negative_prompt) add("negative_prompt", *request.negative_prompt);
  if (request.dynamic_cfg) add("dynamic_cfg", "true");
  if (request.cfg_scale) add("cfg_scale", *request.cfg_scale);
  return given;
}

void refuse_idle(const std::map<std::string, std::string>& given, const models::IdleOptions& idle) {
  for (const std::string& key : idle.keys) {
    if (given.count(key) > 0)
      throw bad_option(key, given.at(key) + " has no effect " + idle.why, "leave it out, or change " + idle.beside);
  }
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
  models::GenerateRequest request;
  request.prompt = from.prompt;
  request.negative_prompt = from.negative_prompt;
  request.seed = from.seed;
  request.num_inference_steps = from.steps;
  request.guidance_scale = from.cfg_scale;
  request.use_dynamic_cfg = from.dynamic_cfg;
  request.scheduler = from.scheduler;
  request.max_sequence_length = from.max_sequence_length;
  request.width = from.width;
  request.height = from.height;
  request.num_frames = from.frames;
  request.attention_mode = mode_of(from.attention, pipeline);
  request.attention_policy = policy_of(from);
  request.token_order = hilbert::parse_token_order(from.token_order);
  request.vae_tiling = models::parse_vae_tiling(from.vae_tiling);
  request.keep_transformer = true;
  const std::map<std::string, std::string> given = given_options(from);
  refuse_idle(given, models::idle_beside(request.attention_mode,
                                         "attention " + std::string(attention::name(request.attention_mode))));
  refuse_idle(given, models::idle_beside(request.attention_policy, "dropped none"));
  if (from.cfg_scale)
    refuse_idle(given, models::idle_beside_guidance(*from.cfg_scale, "cfg_scale " + given.at("cfg_scale")));
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
};

TextToVideo::TextToVideo(const std::string& folder, const ModelOptions& options) {
  guarded([&] {
    if (options.threads != 0) models::check_threads(options.threads);
    auto pipeline =
        models::Pipeline::open(models::ModelFolder::open(folder),
                               {.device = options.device, .dtype = options.dtype, .offload = options.offload});
    if (options.threads != 0) at::set_num_threads(options.threads);
    state_ = std::make_unique<State>(State{std::move(pipeline)});
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
      return video_of(pipeline.generate(request_of(request, pipeline), watcher.observer()));
    });
  } catch (const Failure&) {
    watcher.rethrow();
    throw;
  }
}

}  // namespace sparsereel
