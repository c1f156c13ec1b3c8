// CogVideoX text-to-video: text encoding, denoising with guidance, decoding (diffusers' CogVideoXPipeline).
#include "models/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cmath>
#include <numbers>
#include <sstream>

#include "hilbert/error.h"
#include "models/checkpoint/configs.h"
#include "models/device.h"
#include "models/schedulers/scheduler.h"
#include "models/text/t5_encoder.h"
#include "models/text/tokenizer.h"
#include "models/vae/vae.h"

namespace sparsereel::models {
namespace {

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// "ddim", "dpm" or a class name -> class name; empty stays empty.
std::string scheduler_class(const std::string& text) {
  if (text == "ddim") return "CogVideoXDDIMScheduler";
  if (text == "dpm") return "CogVideoXDPMScheduler";
  if (text.empty() || text == "CogVideoXDDIMScheduler" || text == "CogVideoXDPMScheduler") return text;
  throw bad_input("--scheduler " + text + " is unknown",
                  "use ddim, dpm, CogVideoXDDIMScheduler or CogVideoXDPMScheduler");
}

void require_positive(const char* option, int64_t value) {
  if (value < 1)
    throw bad_input(std::string(option) + " " + std::to_string(value) + " is below 1",
                    std::string("give ") + option + " a positive number");
}

/// Throws naming the two nearest possible values unless value = base (mod step).
void require_step(const char* option, int64_t value, int64_t step, int64_t base) {
  if (value >= std::max<int64_t>(base, 1) && (value - base) % step == 0) return;
  const int64_t first = base > 0 ? base : step;
  const int64_t below = std::max(first, base + (value - base) / step * step);
  const int64_t above = below + step;
  std::ostringstream cause, remedy;
  cause << option << " " << value << " is impossible for this model: "
        << (base ? "it must be 4k + 1" : "it must be a multiple of " + std::to_string(step));
  remedy << "use " << below << " or " << above;
  throw bad_input(cause.str(), remedy.str());
}

class CogVideoXPipeline final : public Pipeline {
 public:
  CogVideoXPipeline(const std::string& folder, const std::string& device, const std::string& dtype)
      : folder_(ModelFolder::open(folder)),
        device_(resolve_device(device)),
        transformer_(folder_.component("transformer")) {
    dit_config_ = parse_cogvideox_config(transformer_.config, transformer_.config_file);
    std::string file;
    const auto vae_json = folder_.config("vae", &file);
    vae_config_ = parse_cogvideox_vae_config(vae_json, file);
    const auto scheduler_json = folder_.config("scheduler", &file);
    scheduler_config_ = parse_scheduler_config(scheduler_json, file);
    dtype_ = resolve_dtype(dtype, device_, stored_dtype());
    // fp32 means fp32: cuDNN would round convolutions' inputs to TF32's 10 bits by default.
    at::globalContext().setAllowTF32CuDNN(false);
    check_components_agree();
  }

  at::Device device() const override { return device_; }
  at::ScalarType dtype() const override { return dtype_; }
  GenerateSettings resolve(const GenerateRequest& request) const override;
  GenerateResult generate(const GenerateRequest& request, const GenerateObserver& observer) override;
  at::Tensor decode(const at::Tensor& latents, VaeTiling tiling, bool* tiled,
                    const GenerateObserver& observer) override;

 private:
  at::ScalarType stored_dtype() const;
  void check_components_agree() const;
  void check_weights() const;
  std::vector<int64_t> latents_shape(const GenerateSettings& settings) const;
  void check_init_latents(const at::Tensor& latents, const GenerateSettings& settings) const;
  at::Tensor encode_text(const GenerateRequest& request, const GenerateSettings& settings,
                         std::vector<std::string>& warnings);
  at::Tensor initial_latents(const GenerateRequest& request, const GenerateSettings& settings,
                             at::Generator& generator) const;
  at::Tensor denoise(const GenerateRequest& request, const GenerateObserver& observer, const at::Tensor& text,
                     GenerateResult& result);
  at::Tensor predict(const at::Tensor& latents, const at::Tensor& text, int64_t timestep, double guidance_scale,
                     AttentionRun& run) const;
  at::Tensor predict_guarded(const at::Tensor& latents, const at::Tensor& text, int64_t timestep, double guidance_scale,
                             GenerateResult& result, const std::function<void()>& meanwhile) const;
  bool use_tiling(VaeTiling tiling, const VaeDecoder& vae, at::IntArrayRef latents) const;
  void load_dit() {
    if (!dit_) dit_ = load_cogvideox_dit(transformer_, device_, dtype_);
  }
  VaeDecoder& vae() {
    if (!vae_) {
      vae_component_ = folder_.component("vae");
      vae_ = load_cogvideox_vae(vae_component_, device_, dtype_);
    }
    return *vae_;
  }

  ModelFolder folder_;
  at::Device device_;
  at::ScalarType dtype_ = at::kFloat;
  Component transformer_, vae_component_;
  CogVideoXConfig dit_config_;
  CogVideoXVaeConfig vae_config_;
  SchedulerConfig scheduler_config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Dit> dit_;
  std::unique_ptr<VaeDecoder> vae_;
};

at::ScalarType CogVideoXPipeline::stored_dtype() const {
  for (const auto& [name, place] : transformer_.tensors) {
    switch (place.second->dtype) {
      case Dtype::f16:
        return at::kHalf;
      case Dtype::bf16:
        return at::kBFloat16;
      case Dtype::f32:
        return at::kFloat;
      default:
        break;
    }
  }
  return at::kFloat;
}

void CogVideoXPipeline::check_components_agree() const {
  std::string text_file;
  const T5Config text = parse_t5_config(folder_.config("text_encoder", &text_file), text_file);
  const auto require_equal = [](const std::string& file, const char* field, int64_t value, const char* other_field,
                                int64_t other) {
    if (value == other) return;
    throw bad_input(file + ": " + field + " " + std::to_string(value) + " does not fit the transformer's " +
                        other_field + " " + std::to_string(other),
                    "use components of one checkpoint");
  };
  require_equal(text_file, "d_model", text.d_model, "text_embed_dim", dit_config_.text_embed_dim);
  require_equal("vae/config.json", "latent_channels", vae_config_.latent_channels, "in_channels",
                dit_config_.in_channels);
  require_equal("transformer/config.json", "out_channels", dit_config_.out_channels, "in_channels",
                dit_config_.in_channels);
}

GenerateSettings CogVideoXPipeline::resolve(const GenerateRequest& request) const {
  const int64_t spatial = int64_t{1} << (vae_config_.block_out_channels.size() - 1);
  const int64_t temporal = static_cast<int64_t>(vae_config_.temporal_compression_ratio);
  GenerateSettings settings;
  settings.num_inference_steps = request.num_inference_steps.value_or(50);
  settings.guidance_scale = request.guidance_scale.value_or(6.0);
  settings.scheduler = request.scheduler.empty() ? scheduler_config_.class_name : scheduler_class(request.scheduler);
  settings.max_sequence_length = request.max_sequence_length.value_or(dit_config_.max_text_seq_length);
  settings.width = request.width.value_or(dit_config_.sample_width * spatial);
  settings.height = request.height.value_or(dit_config_.sample_height * spatial);
  settings.num_frames = request.num_frames.value_or(dit_config_.sample_frames);

  require_positive("--steps", settings.num_inference_steps);
  if (settings.num_inference_steps > scheduler_config_.num_train_timesteps) {
    throw bad_input(
        "--steps " + std::to_string(settings.num_inference_steps) + " exceeds the scheduler's num_train_timesteps",
        "use at most " + std::to_string(scheduler_config_.num_train_timesteps));
  }
  if (!std::isfinite(settings.guidance_scale) || settings.guidance_scale < 0) {
    throw bad_input("--cfg-scale " + std::to_string(settings.guidance_scale) + " is not a finite number from 0 up",
                    "use 1 for no guidance, 6 as a usual value");
  }
  require_positive("--max-sequence-length", settings.max_sequence_length);
  if (settings.max_sequence_length > dit_config_.max_text_seq_length) {
    throw bad_input("--max-sequence-length " + std::to_string(settings.max_sequence_length) +
                        " exceeds the model's max_text_seq_length",
                    "use at most " + std::to_string(dit_config_.max_text_seq_length));
  }
  require_step("--width", settings.width, spatial * dit_config_.patch_size, 0);
  require_step("--height", settings.height, spatial * dit_config_.patch_size, 0);
  require_step("--frames", settings.num_frames, temporal, 1);

  settings.latent_frames = (settings.num_frames - 1) / temporal + 1;
  settings.latent_height = settings.height / spatial;
  settings.latent_width = settings.width / spatial;
  check_init_latents(request.init_latents, settings);
  return settings;
}

/// 1.5 denoises whole groups of patch_size_t latent frames; the surplus stands first and is dropped before decoding.
std::vector<int64_t> CogVideoXPipeline::latents_shape(const GenerateSettings& settings) const {
  const int64_t group = dit_config_.patch_size_t.value_or(1);
  const int64_t frames = (settings.latent_frames + group - 1) / group * group;
  return {1, frames, dit_config_.in_channels, settings.latent_height, settings.latent_width};
}

void CogVideoXPipeline::check_init_latents(const at::Tensor& latents, const GenerateSettings& settings) const {
  const std::vector<int64_t> shape = latents_shape(settings);
  if (!latents.defined() || latents.sizes() == at::IntArrayRef(shape)) return;
  std::ostringstream cause;
  cause << "--init-latents: the tensor has shape " << latents.sizes() << ", this run needs " << at::IntArrayRef(shape);
  throw bad_input(cause.str(), "give latents of that shape, or a size and frame count that fit them");
}

/// Names and shapes of all weights, from the files' headers: what does not fit is found before any time is spent.
void CogVideoXPipeline::check_weights() const {
  T5Encoder::load(folder_.component("text_encoder"), at::kMeta, dtype_);
  load_cogvideox_dit(transformer_, at::kMeta, dtype_);
  load_cogvideox_vae(folder_.component("vae"), at::kMeta, dtype_);
}

at::Tensor CogVideoXPipeline::encode_text(const GenerateRequest& request, const GenerateSettings& settings,
                                          std::vector<std::string>& warnings) {
  if (!tokenizer_) tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(folder_.path() / "tokenizer"));
  std::vector<std::string> texts;
  if (settings.guidance_scale > 1.0) texts.push_back(request.negative_prompt);
  texts.push_back(request.prompt);
  std::vector<at::Tensor> rows;
  for (const std::string& text : texts) {
    const TokenIds tokens = tokenizer_->encode(text, settings.max_sequence_length);
    if (tokens.truncated) {
      warnings.push_back("the prompt was cut to " + std::to_string(settings.max_sequence_length) + " tokens: \"" +
                         text.substr(0, 60) + "...\"");
    }
    rows.push_back(at::tensor(tokens.ids, at::kLong));
  }
  // The encoder is the largest part of some checkpoints: weights and mapping live only while they are needed.
  const T5Encoder encoder = T5Encoder::load(folder_.component("text_encoder"), device_, dtype_);
  return encoder.forward(at::stack(rows).to(device_)).to(dtype_);
}

at::Tensor CogVideoXPipeline::initial_latents(const GenerateRequest& request, const GenerateSettings& settings,
                                              at::Generator& generator) const {
  if (request.init_latents.defined()) return request.init_latents.to(device_, dtype_);
  return at::randn(latents_shape(settings), generator, at::TensorOptions().dtype(dtype_)).to(device_);
}

at::Tensor CogVideoXPipeline::predict(const at::Tensor& latents, const at::Tensor& text, int64_t timestep,
                                      double guidance_scale, AttentionRun& run) const {
  const int64_t batch = text.size(0);
  const at::Tensor input = batch == 1 ? latents : at::cat({latents, latents});
  const at::Tensor timesteps = at::full({batch}, timestep, at::TensorOptions().dtype(at::kLong).device(device_));
  at::Tensor prediction = dit_->forward(input, text, timesteps, run).to(at::kFloat);
  if (batch == 1) return prediction;
  const at::Tensor unconditional = prediction.narrow(0, 0, 1), conditional = prediction.narrow(0, 1, 1);
  return unconditional + guidance_scale * (conditional - unconditional);
}

/// A prediction with NaN or Inf is made again with full attention before anything is committed. `meanwhile` runs while
/// a GPU works on it.
at::Tensor CogVideoXPipeline::predict_guarded(const at::Tensor& latents, const at::Tensor& text, int64_t timestep,
                                              double guidance_scale, GenerateResult& result,
                                              const std::function<void()>& meanwhile) const {
  at::Tensor prediction = predict(latents, text, timestep, guidance_scale, result.attention);
  meanwhile();
  if (at::isfinite(prediction).all().item<bool>()) return prediction;
  const std::string step = "step " + std::to_string(result.attention.step + 1);
  if (result.attention.mode != attention::Mode::full) {
    AttentionRun full;
    full.token_order = result.attention.token_order;
    full.step = result.attention.step;
    full.collects = false;  // what was counted so far is the run's
    prediction = predict(latents, text, timestep, guidance_scale, full);
    if (at::isfinite(prediction).all().item<bool>()) {
      result.warnings.push_back(step + " gave NaN or Inf with " + std::string(name(result.attention.mode)) +
                                " attention and was redone with full attention");
      return prediction;
    }
  }
  throw run_failure(step + ": the denoiser's prediction holds NaN or Inf",
                    "try --dtype fp32 (or bf16 in place of fp16), or check the checkpoint with 'sparsereel inspect'");
}

double dynamic_guidance(double guidance_scale, int64_t num_inference_steps, int64_t timestep) {
  const double steps = static_cast<double>(num_inference_steps);
  return 1 + guidance_scale *
                 (1 - std::cos(std::numbers::pi * std::pow((steps - static_cast<double>(timestep)) / steps, 5.0))) / 2;
}

at::Tensor CogVideoXPipeline::denoise(const GenerateRequest& request, const GenerateObserver& observer,
                                      const at::Tensor& text, GenerateResult& result) {
  const GenerateSettings& settings = result.settings;
  SchedulerConfig scheduler_config = scheduler_config_;
  scheduler_config.class_name = settings.scheduler;
  const auto scheduler = make_scheduler(scheduler_config, settings.num_inference_steps);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(request.seed);
  at::Tensor latents = initial_latents(request, settings, generator);
  result.attention.mode = request.attention_mode;
  result.attention.policy = request.attention_policy;
  result.attention.token_order = request.token_order;
  result.attention.watcher = observer.attention;
  result.attention.collects = false;

  const auto& timesteps = scheduler->timesteps();
  Stopwatch watch;
  for (size_t i = 0; i < timesteps.size(); ++i) {
    if (observer.cancelled && observer.cancelled()) throw Cancelled{};
    result.attention.step = static_cast<int64_t>(i);
    const double guidance = request.use_dynamic_cfg
                                ? dynamic_guidance(settings.guidance_scale, settings.num_inference_steps, timesteps[i])
                                : settings.guidance_scale;
    const at::Tensor prediction = predict_guarded(latents, text, timesteps[i], guidance, result, [&] {
      scheduler->draw(static_cast<int64_t>(i), latents, generator);
    });
    latents = scheduler->step(prediction, static_cast<int64_t>(i), latents, generator).to(dtype_);
    result.seconds.steps.push_back(watch.lap());
    if (observer.step)
      observer.step(static_cast<int64_t>(i) + 1, static_cast<int64_t>(timesteps.size()), result.seconds.steps.back());
  }
  dit_->collect(result.attention);
  result.attention.watcher = nullptr;  // the result outlives what the observer refers to
  return latents.narrow(1, latents.size(1) - settings.latent_frames, settings.latent_frames);
}

GenerateResult CogVideoXPipeline::generate(const GenerateRequest& request, const GenerateObserver& observer) {
  const c10::InferenceMode guard;
  GenerateResult result;
  result.settings = resolve(request);
  if (!dit_) check_weights();
  const auto announce = [&](const char* stage) {
    if (observer.stage) observer.stage(stage);
  };
  Stopwatch watch;
  announce("text");
  const at::Tensor text = encode_text(request, result.settings, result.warnings);
  result.seconds.text = watch.lap();
  announce("load");
  load_dit();
  result.seconds.load = watch.lap();
  announce("denoise");
  const at::Tensor latents = denoise(request, observer, text, result);
  result.latents = latents.to(at::kCPU).contiguous();
  result.seconds.denoise = watch.lap();
  if (observer.latents) observer.latents(result.latents, result.settings);
  if (!request.decode) return result;
  announce("decode");
  watch.lap();
  result.frames = decode(latents, request.vae_tiling, &result.settings.vae_tiled, observer);
  result.seconds.decode = watch.lap();
  return result;
}

bool CogVideoXPipeline::use_tiling(VaeTiling tiling, const VaeDecoder& decoder, at::IntArrayRef latents) const {
  if (tiling != VaeTiling::automatic) return tiling == VaeTiling::on;
  // A quarter of the free memory stays free for what the estimate does not see.
  return decoder.untiled_bytes(latents[1], latents[3], latents[4]) > free_memory(device_) / 4 * 3;
}

at::Tensor CogVideoXPipeline::decode(const at::Tensor& latents, VaeTiling tiling, bool* tiled,
                                     const GenerateObserver& observer) {
  const c10::InferenceMode guard;
  if (latents.dim() != 5 || latents.size(0) != 1 || latents.size(2) != vae_config_.latent_channels) {
    std::ostringstream cause;
    cause << "latents of shape " << latents.sizes() << " do not fit this model: [1, frames, "
          << vae_config_.latent_channels << ", height, width] is needed";
    throw bad_input(cause.str(), "decode them with the checkpoint that made them (-m)");
  }
  VaeDecoder& decoder = vae();
  const bool use_tiles = use_tiling(tiling, decoder, latents.sizes());
  if (tiled != nullptr) *tiled = use_tiles;
  const at::Tensor scaled = latents.to(device_, dtype_).permute({0, 2, 1, 3, 4}) * (1.0 / decoder.scaling_factor());
  const auto progress = [&](int64_t done, int64_t total) {
    if (observer.decode) observer.decode(done, total);
    if (observer.cancelled && observer.cancelled()) throw Cancelled{};
  };
  const at::Tensor video = decoder.decode(scaled, use_tiles, progress);
  const at::Tensor frames = video[0].permute({1, 2, 3, 0}).to(at::kFloat).mul(0.5).add_(0.5).clamp_(0, 1);
  return frames.contiguous().to(at::kCPU);
}

}  // namespace

std::shared_ptr<Pipeline> Pipeline::open(const std::string& folder, const std::string& device,
                                         const std::string& dtype) {
  return std::make_shared<CogVideoXPipeline>(folder, device, dtype);
}

}  // namespace sparsereel::models
