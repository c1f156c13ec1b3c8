// The library's boundary: plain types become a pipeline's, and every exception becomes a Failure.
#include "models/sparsereel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <utility>

#include "attention/attention.h"
#include "models/failure.h"
#include "models/pipeline.h"

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
    throw Failure(error.exit_code(), error.what(), error.remedy());
  }
}

models::VaeTiling tiling_of(const std::string& text) {
  if (text == "auto") return models::VaeTiling::automatic;
  if (text == "on") return models::VaeTiling::on;
  if (text == "off") return models::VaeTiling::off;
  throw bad_input("--vae-tiling " + text + ": one of auto, on, off is needed", "use one of these");
}

attention::Mode mode_of(const std::string& text, const models::Pipeline& pipeline) {
  using attention::Mode;
  const auto reason = [&](Mode mode) {
    return attention::unsupported_reason(mode, pipeline.device(), pipeline.dtype());
  };
  if (text.empty()) return reason(Mode::sparse).empty() ? Mode::sparse : Mode::full;
  const Mode mode = attention::parse_mode(text);
  if (const std::string why = reason(mode); !why.empty())
    throw bad_input("--attention " + text + " cannot run on " + pipeline.device().str() + ": " + why,
                    "use --attention full, or --device cpu");
  return mode;
}

attention::Policy policy_of(const VideoRequest& request) {
  attention::Policy policy;
  attention::HeadPolicy& head = policy.defaults;
  if (request.topk && request.cdf) throw bad_input("--topk and --cdf exclude each other", "give one of them");
  if (request.cdf) head.selection = attention::Selection::cdf;
  head.topk = request.topk.value_or(head.topk);
  head.cdf = request.cdf.value_or(head.cdf);
  head.similarity = request.similarity.value_or(head.similarity);
  head.pv_threshold = request.pv_threshold.value_or(head.pv_threshold);
  policy.dense_steps = request.dense_steps;
  policy.dense_layers = request.dense_layers;
  attention::validate(policy);
  return policy;
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
  request.vae_tiling = tiling_of(from.vae_tiling);
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
  video.warnings = result.warnings;
  return video;
}

}  // namespace

Failure::Failure(int code, std::string cause, std::string remedy)
    : std::runtime_error(cause + "\n  remedy: " + remedy),
      code_(code),
      cause_(std::move(cause)),
      remedy_(std::move(remedy)) {}

Failure::~Failure() = default;

struct TextToVideo::State {
  std::shared_ptr<models::Pipeline> pipeline;
};

TextToVideo::TextToVideo(const std::string& folder, const ModelOptions& options) {
  guarded([&] {
    auto pipeline =
        models::Pipeline::open(models::ModelFolder::open(folder),
                               {.device = options.device, .dtype = options.dtype, .offload = options.offload});
    if (options.threads < 0 || options.threads > 4096)
      throw bad_input("--threads " + std::to_string(options.threads) + " is outside 1 to 4096",
                      "give the number of CPU cores to use");
    if (options.threads > 0) at::set_num_threads(options.threads);
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
