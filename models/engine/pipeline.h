// Text to video: the order of the stages, seeds and memory policy, the same for every family.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hilbert/token_order.h"
#include "models/checkpoint/lora.h"
#include "models/checkpoint/model_folder.h"
#include "models/dit/attend.h"
#include "models/engine/guidance.h"
#include "models/layers/parameters.h"
#include "models/video/cache_rule.h"
#include "models/video/spec.h"

namespace sparsereel::models {

enum class VaeTiling { automatic, on, off };

struct DenoisingState;

/// One video. Unset optionals take the model's defaults; Pipeline::resolve() fills them in.
struct GenerateRequest {
  std::string prompt;
  std::optional<std::string> negative_prompt;
  uint64_t seed = 42;
  std::optional<int64_t> num_inference_steps;
  std::optional<double> guidance_scale;
  std::optional<double> guidance_scale_2;  // of the second expert; unset: the first's where that is given
  bool use_dynamic_cfg = false;
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler;             // class or name of one of the model's samplers; empty: the checkpoint's
  std::optional<double> flow_shift;  // of samplers that have one; unset: the checkpoint's
  std::vector<double> sigmas;        // of these: noise levels before the shift, one a step; empty: evenly spaced
  std::optional<int64_t> max_sequence_length;
  std::optional<int64_t> width, height, num_frames;  // pixels, frames
  attention::Mode attention_mode = attention::Mode::full;
  attention::Policy attention_policy;
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  CacheRule cache;  // of steps whose later blocks are left out
  VaeTiling vae_tiling = VaeTiling::automatic;
  at::Tensor init_latents;                       // in the model's layout, in place of noise; consumes no draw
  at::Tensor text;                               // of text_stage(), for this request; undefined: it is encoded
  std::shared_ptr<const DenoisingState> resume;  // go on from here; null: from the first step
  bool decode = true;                            // false: stop at the latents
  /// The next video follows at once: the denoiser stays beside the decoder, which needs its memory otherwise.
  bool keep_transformer = false;
};

/// What the request resolved to, for reports and recipes.
struct GenerateSettings {
  int64_t num_inference_steps = 0;
  double guidance_scale = 0;               // guidance runs where it is above 1
  std::optional<double> guidance_scale_2;  // of the second expert, where there is one
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler;
  std::optional<double> flow_shift;  // of a sampler that has one
  std::vector<double> sigmas;        // likewise
  int64_t max_sequence_length = 0;
  int64_t width = 0, height = 0, num_frames = 0;
  LatentSize latent;
  int64_t decoded_frames = 0;  // may differ from num_frames; see frame_count_warning()
  bool vae_tiled = false;
};

struct StageSeconds {
  double load_text_encoder = 0, text = 0;  // a streamed encoder's loading is part of text
  double load_transformer = 0, denoise = 0;
  double switch_transformer = 0;  // loading one between steps, where a model has several; no part of denoise
  double load_vae = 0, decode = 0;
  std::vector<double> steps;  // each denoising step

  double load() const { return load_text_encoder + load_transformer + switch_transformer + load_vae; }
};

/// Most bytes of a GPU in use during a stage and the loading before it; 0 on a CPU.
struct StageMemory {
  uint64_t text = 0, denoise = 0, decode = 0;

  uint64_t largest() const { return std::max({text, denoise, decode}); }
};

struct GenerateResult {
  at::Tensor frames;   // fp32 CPU [F, H, W, 3] in 0..1; undefined when request.decode is false
  at::Tensor latents;  // CPU, in the model's layout and dtype of latents, diffusers' scale
  GenerateSettings settings;
  StageSeconds seconds;
  StageMemory memory;
  AttentionRun attention;
  std::vector<std::string> warnings;  // truncated prompt, redone steps, a decode that was done again in tiles
};

struct Decoded {
  at::Tensor frames;  // as in GenerateResult
  bool tiled = false;
  std::string warning;  // empty: none
};

/// Watches a run; every member may be empty.
struct GenerateObserver {
  std::function<void(const std::string& stage)> stage;                    // "load", "text", "denoise", "decode"
  std::function<void(int64_t step, int64_t steps, double seconds)> step;  // after each denoising step
  std::function<void(int64_t done, int64_t total)> decode;                // after each decoded piece
  std::function<void(const DenoisingState&)> checkpoint;  // after every checkpoint_every steps, and after the last
  int64_t checkpoint_every = 0;                           // 0: only after the last
  std::function<void(const GenerateResult&)> latents;     // as soon as they are final: the result has no frames yet
  std::function<void(const AttentionCall&)> attention;    // before each call of the denoiser's attention
  std::function<bool()> cancelled;  // polled before each step and after each decoded piece; true throws Cancelled
};

/// Thrown when the observer cancels.
struct Cancelled {};

class Denoising;

/// How many layers and heads of attention a denoiser has.
struct HeadCount {
  int64_t layers = 0, heads = 0;
  bool operator==(const HeadCount&) const = default;
};

struct PipelineOptions {
  std::string device = "auto";  // as in device.h
  std::string dtype = "auto";
  std::string vae_dtype = "auto";  // auto: the model's, which most share with the run
  /// fp8: the large matrices of the denoiser's blocks or of the text encoder in 8-bit floating point, made while they
  /// are loaded, and so the products with them. auto: in the run's dtype. Slow on a CPU, which emulates it.
  std::string weights = "auto", text_weights = "auto";
  /// The GPU holds one layer of the text encoder and two blocks of the denoiser at a time, the others come from the
  /// host while it computes; automatic tiling always tiles. No effect on a CPU.
  bool offload = false;
  std::vector<LoraChoice> loras{};  // added to the weights in this order
};

class Experts;
class StageMeter;
class TextStage;
struct Loading;
struct WeightNeed;
class VaeDecoder;

class Pipeline {
 public:
  /// Opens a diffusers folder; weights are loaded stage by stage.
  static std::shared_ptr<Pipeline> open(ModelFolder folder, const PipelineOptions& options);
  static std::shared_ptr<Pipeline> open(const std::string& folder, const std::string& device, const std::string& dtype);
  Pipeline(ModelFolder folder, const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType vae_dtype() const { return vae_dtype_; }
  bool fp8_weights() const { return fp8_weights_; }
  bool fp8_text_weights() const { return fp8_text_weights_; }
  /// To follow "weights fp8 has no effect" where that was asked for and no layer takes it: the pipeline goes on
  /// without.
  const std::string& why_idle_weights() const { return why_idle_weights_; }
  const std::string& why_idle_text_weights() const { return why_idle_text_weights_; }
  const ModelSpec& spec() const { return spec_; }
  HeadCount heads() const { return {spec_.layers, spec_.heads}; }
  const std::string& model_hash() const;  // of checkpoint/model_hash.h: the LoRAs are no part of it
  const std::vector<LoraChoice>& loras() const { return loras_; }
  const std::string& lora_hash() const;  // hash_of(loras())
  /// Checks the request against the checkpoint and fills in defaults. Throws Error (exit code 2) naming the field and,
  /// for impossible sizes, the two nearest possible values; also for a video, or weights, that cannot fit into memory.
  GenerateSettings resolve(const GenerateRequest& request) const;
  /// To warn of before a video is made: that its steps will take very long on this CPU. Empty: they will not.
  std::string slow_warning(const GenerateSettings& settings) const;
  /// `settings` here and below: what resolve() made of the request, or of one that differs in prompts, seed, attention
  /// or what is given beside it (text, latents, a state to go on from) only. Nothing is checked again.
  GenerateResult generate(const GenerateRequest& request, const GenerateSettings& settings,
                          const GenerateObserver& observer = {});
  /// Resolves the request first.
  GenerateResult generate(const GenerateRequest& request, const GenerateObserver& observer = {}) {
    return generate(request, resolve(request), observer);
  }
  /// Latents as saved (the model's layout, diffusers' scale) -> frames as in GenerateResult.
  /// With `automatic` tiling a decode that runs out of GPU memory is done again in tiles. Throws Error where the
  /// latents are not of the model's channels, or the frames hold NaN.
  Decoded decode(const at::Tensor& latents, VaeTiling tiling, const GenerateObserver& observer = {});

  /// Opens all files, which may be moved from then on, and checks names and shapes of all weights by their headers.
  /// Throws Error: what does not fit is found before any time is spent. A second call does nothing.
  void check_weights() const;

  /// The stages of generate(), for those who measure them one by one or run one for many videos. What is loaded stays
  /// until it is released.
  TextStage& text_stage() { return *text_; }
  /// The first of its transformers; the steps load what they need by themselves.
  void load_transformer();
  bool has_transformer() const;  // any of them is loaded
  void release_transformer();
  /// It must not outlive the pipeline. Loads nothing.
  std::unique_ptr<Denoising> start_denoising(const GenerateRequest& request, const GenerateSettings& settings,
                                             const at::Tensor& text);
  void load_vae();

 private:
  void drop_idle_fp8();
  at::ScalarType stored_dtype() const;
  WeightFormat transformer_format() const { return {dtype_, fp8_weights_}; }
  at::ScalarType dtype_of(Precision precision) const { return precision == Precision::fp32 ? at::kFloat : dtype_; }
  at::Tensor encode_stage(const GenerateRequest& request, StageMeter& meter, GenerateResult& result);
  Loading loading() const;
  const WeightNeed& transformer_need() const;
  bool fits_beside(const std::string& role) const;
  void denoise_stage(Denoising& denoising, const GenerateObserver& observer, GenerateResult& result);
  void check_latents(const at::Tensor& latents) const;
  bool use_tiling(VaeTiling tiling, at::IntArrayRef latents) const;

  ModelFolder folder_;
  at::Device device_;
  at::ScalarType dtype_ = at::kFloat, vae_dtype_ = at::kFloat;
  bool fp8_weights_ = false, fp8_text_weights_ = false;
  std::string why_idle_weights_, why_idle_text_weights_;
  bool offload_ = false;
  std::vector<LoraChoice> loras_;
  mutable std::string model_hash_, lora_hash_;
  mutable bool weights_checked_ = false;
  mutable std::shared_ptr<const WeightNeed> weight_need_;  // null: not asked for yet
  Component vae_component_;
  ModelSpec spec_;
  std::unique_ptr<TextStage> text_;
  std::shared_ptr<Experts> experts_;
  std::unique_ptr<VaeDecoder> vae_;
};

}  // namespace sparsereel::models
