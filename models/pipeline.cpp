// The stages, one after the other; see pipeline.h.
#include "models/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "hilbert/error.h"
#include "models/checkpoint/model_hash.h"
#include "models/components.h"
#include "models/decode_retry.h"
#include "models/denoising.h"
#include "models/device.h"
#include "models/family.h"
#include "models/frames.h"
#include "models/memory_need.h"
#include "models/request.h"
#include "models/text/random_ids.h"
#include "models/text/t5_encoder.h"
#include "models/text/tokenizer.h"
#include "models/text/unicode.h"

namespace sparsereel::models {

/// Seconds and peak memory of stages that follow each other; waits for the device at each stage's end.
class StageMeter {
 public:
  explicit StageMeter(at::Device device) : device_(device) { reset_peak_memory(device); }

  double lap() {
    synchronize(device_);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }
  uint64_t take_peak() const {
    const uint64_t peak = peak_memory(device_);
    reset_peak_memory(device_);
    return peak;
  }

 private:
  at::Device device_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

namespace {

/// video [1, 3, F, H, W] in about [-1, 1] -> fp32 CPU [F, H, W, 3] in 0..1. Converted where the video is, a few frames
/// at a time: the device has the bandwidth, but not always the room.
at::Tensor host_frames(const at::Tensor& video) {
  constexpr int64_t chunk = 8;
  const at::Tensor frames = video[0].permute({1, 2, 3, 0});
  at::Tensor result = at::empty(frames.sizes(), at::kFloat);
  for (int64_t start = 0; start < frames.size(0); start += chunk) {
    const int64_t count = std::min(chunk, frames.size(0) - start);
    const at::Tensor part = frames.narrow(0, start, count).to(at::kFloat).mul(0.5).add_(0.5).clamp_(0, 1);
    result.narrow(0, start, count).copy_(part.contiguous());
  }
  return result;
}

}  // namespace

Pipeline::Pipeline(ModelFolder folder, const PipelineOptions& options)
    : folder_(std::move(folder)),
      device_(resolve_device(options.device)),
      offload_(options.offload),
      transformer_(folder_.component("transformer")),
      spec_(describe(folder_)) {
  if (offload_ && device_.is_cpu())
    throw bad_option("offload", "has no effect on a CPU, whose memory is the host's", "leave it out");
  std::string file;
  const auto scheduler_json = folder_.config("scheduler", &file);
  scheduler_config_ = parse_scheduler_config(scheduler_json, file);
  const auto text_json = folder_.config("text_encoder", &file);
  text_config_ = parse_t5_config(text_json, file);
  dtype_ = resolve_dtype(options.dtype, device_, stored_dtype());
  // fp32 means fp32: cuDNN would round convolutions' inputs to TF32's 10 bits by default.
  at::globalContext().setAllowTF32CuDNN(false);
}

Pipeline::~Pipeline() = default;

const std::string& Pipeline::model_hash() const {
  if (model_hash_.empty()) model_hash_ = models::model_hash(folder_);  // not before: it needs every weight file
  return model_hash_;
}

GenerateSettings Pipeline::resolve(const GenerateRequest& request) const {
  GenerateSettings settings = resolve_request(request, spec_);
  check_memory(settings, least_memory(settings, request.decode, spec_, device_, dtype_), device_);
  return settings;
}

void Pipeline::load_text_encoder() {
  if (!text_encoder_)
    text_encoder_ = std::make_unique<T5Encoder>(T5Encoder::load(folder_.component("text_encoder"), device_, dtype_));
}

void Pipeline::load_transformer() {
  if (!dit_) dit_ = load_dit(transformer_, device_, dtype_, offload_);
}

void Pipeline::release_transformer() {
  dit_.reset();
  if (!device_.is_cpu()) c10::getDeviceAllocator(device_.type())->emptyCache();
}

void Pipeline::load_vae() {
  if (vae_) return;
  vae_component_ = folder_.component("vae");
  vae_ = models::load_vae(vae_component_, device_, dtype_of(spec_.vae));
}

at::ScalarType Pipeline::stored_dtype() const {
  if (folder_.has_random_weights()) return at::kBFloat16;
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

void Pipeline::check_weights() const {
  T5Encoder::load(folder_.component("text_encoder"), at::kMeta, dtype_);
  load_dit(transformer_, at::kMeta, dtype_);
  models::load_vae(folder_.component("vae"), at::kMeta, dtype_of(spec_.vae));
  load_tokenizer();
}

void Pipeline::load_tokenizer() const {
  if (!tokenizer_ && !folder_.has_random_weights())
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(folder_.path() / "tokenizer"));
}

/// Its files stay open for the next prompt, wherever the folder is by then, but not in memory.
void Pipeline::release_text_encoder() {
  text_encoder_.reset();
  for (const auto& file : folder_.component("text_encoder").files)
    for (const TensorEntry& entry : file->header().entries) file->release(entry);
}

/// int64 [length]. `name`: the prompt's, for the warning.
at::Tensor Pipeline::token_ids(const char* name, const std::string& text, int64_t length,
                               std::vector<std::string>* warnings) {
  if (folder_.has_random_weights()) return random_token_ids(text, length, text_config_.vocab_size);
  load_tokenizer();
  const TokenIds tokens = tokenizer_->encode(text, length);
  if (tokens.truncated && warnings != nullptr) {
    warnings->push_back(std::string("the ") + name + " was cut to " + std::to_string(length) + " tokens: \"" +
                        std::string(whole_characters(text, 60)) + "...\"");
  }
  return at::tensor(tokens.ids, at::kLong);
}

at::Tensor Pipeline::encode_text(const GenerateRequest& request, const GenerateSettings& settings,
                                 std::vector<std::string>* warnings) {
  const c10::InferenceMode guard;
  std::vector<at::Tensor> rows;
  if (settings.guidance_scale > 1.0)
    rows.push_back(token_ids("negative prompt", request.negative_prompt, settings.max_sequence_length, warnings));
  rows.push_back(token_ids("prompt", request.prompt, settings.max_sequence_length, warnings));
  const at::Tensor ids = at::stack(rows).to(device_);
  if (text_encoder_) return text_encoder_->forward(ids).to(dtype_);
  return T5Encoder::load(folder_.component("text_encoder"), device_, dtype_, Residence::file).forward(ids).to(dtype_);
}

/// The encoder is the largest part of some checkpoints. Where it does not fit into the GPU's memory (a quarter of which
/// stays free) it passes through layer by layer.
bool Pipeline::streams_text_encoder() const {
  if (device_.is_cpu() || offload_) return offload_;
  return T5Encoder::weight_bytes(text_config_, dtype_) > free_memory(device_) / 4 * 3;
}

at::Tensor Pipeline::encode_stage(const GenerateRequest& request, StageMeter& meter, GenerateResult& result) {
  if (!streams_text_encoder()) load_text_encoder();
  result.seconds.load_text_encoder = meter.lap();
  at::Tensor text = encode_text(request, result.settings, &result.warnings);
  release_text_encoder();
  result.seconds.text = meter.lap();
  result.memory.text = meter.take_peak();
  return text;
}

std::unique_ptr<Denoising> Pipeline::start_denoising(const GenerateRequest& request, const GenerateSettings& settings,
                                                     const at::Tensor& text) {
  const c10::InferenceMode guard;
  load_transformer();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(request.seed);
  const auto noise = [&] {
    return at::randn(latents_shape(spec_, settings.latent), generator,
                     at::TensorOptions().dtype(dtype_of(spec_.noise)));
  };
  const at::Tensor latents = request.init_latents.defined() ? request.init_latents : noise();
  return std::make_unique<Denoising>(dit_, scheduler_config_, request, settings,
                                     DenoisingStart{.text = text,
                                                    .latents = latents.to(device_, dtype_of(spec_.latents)),
                                                    .generator = generator,
                                                    .layout = spec_.layout});
}

at::Tensor Pipeline::denoise_stage(const GenerateRequest& request, const GenerateObserver& observer,
                                   const at::Tensor& text, GenerateResult& result) {
  const auto denoising = start_denoising(request, result.settings, text);
  denoising->attention().watcher = observer.attention;
  if (request.resume) denoising->resume(*request.resume);
  StageMeter meter(device_);
  while (!denoising->finished()) {
    if (observer.cancelled && observer.cancelled()) throw Cancelled{};
    denoising->step();
    result.seconds.steps.push_back(meter.lap());
    if (observer.step) observer.step(denoising->done(), denoising->steps(), result.seconds.steps.back());
    const bool due = observer.checkpoint_every > 0 && denoising->done() % observer.checkpoint_every == 0;
    if (observer.checkpoint && (due || denoising->finished())) {
      observer.checkpoint(denoising->state());
      meter.lap();  // no part of the next step
    }
  }
  result.attention = std::move(denoising->attention());
  result.attention.watcher = nullptr;  // the result outlives what the observer refers to
  result.warnings.insert(result.warnings.end(), denoising->warnings().begin(), denoising->warnings().end());
  return denoising->latents();
}

GenerateResult Pipeline::generate(const GenerateRequest& request, const GenerateSettings& settings,
                                  const GenerateObserver& observer) {
  const c10::InferenceMode guard;
  GenerateResult result;
  result.settings = settings;
  if (!dit_) check_weights();
  const auto announce = [&](const char* stage) {
    if (observer.stage) observer.stage(stage);
  };
  StageMeter meter(device_);
  if (!request.text.defined()) announce("text");
  const at::Tensor text = request.text.defined() ? request.text.to(device_) : encode_stage(request, meter, result);
  announce("load");
  load_transformer();
  result.seconds.load_transformer = meter.lap();
  const uint64_t loading = meter.take_peak();
  announce("denoise");
  const at::Tensor latents = denoise_stage(request, observer, text, result);
  if (!request.keep_transformer) release_transformer();
  result.latents = latents.to(at::kCPU).contiguous();
  result.seconds.denoise = meter.lap();
  result.memory.denoise = std::max(loading, meter.take_peak());
  if (observer.latents) observer.latents(result);
  if (!request.decode) return result;
  announce("decode");
  meter.lap();
  load_vae();
  result.seconds.load_vae = meter.lap();
  Decoded decoded = decode(latents, request.vae_tiling, observer);
  result.frames = std::move(decoded.frames);
  result.settings.vae_tiled = decoded.tiled;
  if (!decoded.warning.empty()) result.warnings.push_back(decoded.warning);
  result.seconds.decode = meter.lap();
  result.memory.decode = meter.take_peak();
  return result;
}

/// latents: [1, C, F, H, W].
bool Pipeline::use_tiling(VaeTiling tiling, at::IntArrayRef latents) const {
  if (tiling != VaeTiling::automatic) return tiling == VaeTiling::on;
  if (offload_) return true;  // who offloads wants little memory in use, whatever is free
  // A quarter of the free memory stays free for what the estimate does not see.
  return vae_->untiled_bytes(latents[2], latents[3], latents[4]) > free_memory(device_) / 4 * 3;
}

void Pipeline::check_latents(const at::Tensor& latents) const {
  const int64_t channels = spec_.latent_channels, axis = 3 - frames_axis(spec_.layout);
  if (latents.dim() == 5 && latents.size(0) == 1 && latents.size(axis) == channels) return;
  std::ostringstream cause;
  cause << "latents of shape " << latents.sizes() << " do not fit this model: [1, " << (axis == 2 ? "frames, " : "")
        << channels << (axis == 1 ? ", frames" : "") << ", height, width] is needed";
  throw bad_input(cause.str(), "decode them with the checkpoint that made them");
}

Decoded Pipeline::decode(const at::Tensor& latents, VaeTiling tiling, const GenerateObserver& observer) {
  const c10::InferenceMode guard;
  check_latents(latents);
  load_vae();
  Decoded result;
  at::Tensor there = latents.to(device_, dtype_of(spec_.vae));
  if (spec_.layout == LatentLayout::frames_first) there = there.permute({0, 2, 1, 3, 4});
  result.tiled = use_tiling(tiling, there.sizes());
  const bool tiled_first = result.tiled;
  const auto progress = [&](int64_t done, int64_t total) {
    if (observer.decode) observer.decode(done, total);
    if (observer.cancelled && observer.cancelled()) throw Cancelled{};
  };
  result.frames = decode_or_retry_tiled(
      result.tiled, tiling == VaeTiling::automatic,
      [&](bool tiled) { return host_frames(vae_->decode(there, tiled, progress)); },
      [&] {
        const bool had_transformer = dit_ != nullptr;
        release_transformer();
        return had_transformer;
      });
  check_numbers(result.frames, dtype_);
  if (result.tiled != tiled_first) result.warning = "decoding ran out of GPU memory and was done again in tiles";
  return result;
}

std::shared_ptr<Pipeline> Pipeline::open(ModelFolder folder, const PipelineOptions& options) {
  return std::make_shared<Pipeline>(std::move(folder), options);
}

std::shared_ptr<Pipeline> Pipeline::open(const std::string& folder, const std::string& device,
                                         const std::string& dtype) {
  return open(ModelFolder::open(folder), {.device = device, .dtype = dtype});
}

}  // namespace sparsereel::models
