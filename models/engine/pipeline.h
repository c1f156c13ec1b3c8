// Text to video: the order of the stages, seeds and memory policy, the same for every family.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/conditioning.h"
#include "models/request/images.h"
#include "models/request/outcome.h"
#include "models/request/plan.h"
#include "models/request/request.h"
#include "models/request/run.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/part_files.h"

namespace sparsereel::models {

class Denoising;

class Experts;
class TextStage;
struct Loading;
struct WeightNeed;
struct StageEstimate;
struct LatentDistribution;
struct Decoder;
class Vae;

class Pipeline {
 public:
  /// Weights are loaded stage by stage. Of the request counts what decides the pipeline.
  static std::shared_ptr<Pipeline> open(Checkpoint folder, const Request& request);
  static std::shared_ptr<Pipeline> open(const std::string& folder, const std::string& device, const std::string& dtype);
  Pipeline(Checkpoint folder, const Request& request);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }
  bool fp8_weights() const { return fp8_weights_; }
  bool fp8_text_weights() const { return fp8_text_weights_; }
  /// To follow "weights fp8 has no effect" where that was asked for and no layer takes it: the pipeline goes on
  /// without.
  const std::string& why_idle_weights() const { return why_idle_weights_; }
  const std::string& why_idle_text_weights() const { return why_idle_text_weights_; }
  /// Warnings of what LoRAs and files of weights hold and was left out, and of weights that are rounded twice.
  const std::vector<std::string>& weight_warnings() const { return weight_warnings_; }
  const ModelSpec& spec() const { return spec_; }
  std::string family() const;  // its name
  HeadCount heads() const { return {spec_.layers, spec_.heads}; }
  const std::string& model_hash()
      const;  // of store/checkpoint/model_hash.h, with the request's files: the LoRAs are no part
  const std::string& lora_hash() const;             // hash_of() the LoRAs
  const std::vector<PartFile>& part_files() const;  // of store/checkpoint/part_files.h
  /// Checks the request against the checkpoint and the device and fills in what is unset. Throws Error (bad input)
  /// naming the field and, for impossible sizes, the two nearest possible values; also for a video, or weights, that
  /// cannot fit into memory. `decode`: as in Inputs. `ranks`: that make it together.
  Plan resolve(const Request& request, bool decode = true, int64_t ranks = 1) const;
  /// The same without the question whether there is memory for it: to be shown, or made elsewhere.
  Plan resolve_anywhere(const Request& request) const;
  /// What each stage of making the plan's video is likely to take, and what would help where memory is short; see
  /// memory_need.h. Loads nothing.
  std::vector<StageEstimate> likely_stages(const Plan& plan, int64_t ranks = 1) const;
  /// Throws Error where they are not of the plan's shape; undefined ones pass.
  void check_init_latents(const Plan& plan, const at::Tensor& latents) const;
  /// Throws Error where so many ranks cannot make the video together.
  void check_ranks(const Plan& plan, int64_t ranks) const;
  /// To warn of before a video is made: that its steps will take very long on this CPU. Empty: they will not.
  std::string slow_warning(const Plan& plan) const;
  /// `plan` here and below: of resolve(), or one that differs from it in prompts, seed, attention or cache only.
  /// `begun`: of encode(), where inputs have what that made.
  Outcome generate(const Plan& plan, const Inputs& inputs = {}, const Run& run = {}, Outcome begun = {});
  /// Resolves the request first.
  Outcome generate(const Request& request, const Inputs& inputs = {}, const Run& run = {}) {
    return generate(resolve(request, inputs.decode), inputs, run);
  }
  /// Latents as saved (the model's layout, diffusers' scale) -> frames as in Outcome.
  /// With `automatic` tiling a decode that runs out of GPU memory is done again in tiles. Throws Error where the
  /// latents are not of the model's channels, or the frames hold NaN.
  Decoded decode(const at::Tensor& latents, VaeTiling tiling, const Run& run = {});

  /// Opens all files, which may be moved from then on, and checks names and shapes of all weights by their headers.
  /// Throws Error: what does not fit is found before any time is spent. A second call does nothing.
  /// with_images: also those of what encodes images, which a model that needs one always has.
  void check_weights(bool with_images = false) const;

  /// The first stage of generate(): what the video is made from. `outcome` gets what there is to tell of it. Where
  /// there are no images, the transformer begins to load beside the text encoder.
  Conditioning encode(const Plan& plan, const Inputs& inputs, const Run& run, Outcome& outcome);
  /// Parts of its stages, for those who measure them one by one or run one for many videos. What is loaded stays until
  /// it is released.
  TextStage& text_stage() { return *text_; }
  /// Adds what is known of the plan's video from its images. The encoders are loaded for that alone. Frames are encoded
  /// in tiles where memory is short, whatever vae_tiling is, and with a warning then. Of `run` counts what is told
  /// after each piece, and whether it is cancelled.
  void add_images(Conditioning& conditioning, const Plan& plan, const Images& images,
                  std::vector<std::string>* warnings = nullptr, const Run& run = {}) const;
  /// The first of its transformers; the steps load what they need by themselves.
  void load_transformer();
  /// Begins that in a thread of its own, where a GPU has room for it beside the text encoder: who needs it waits.
  /// resumes: perhaps at another one's steps, so that nothing is begun where there are several.
  void begin_transformer(bool resumes = false);
  bool has_transformer() const;  // any of them is loaded
  void release_transformer();
  /// It must not outlive the pipeline. Loads nothing.
  std::unique_ptr<Denoising> start_denoising(const Plan& plan, const Conditioning& conditioning,
                                             const at::Tensor& init_latents = {}, Group* group = nullptr);
  void load_vae();

 private:
  void drop_idle_fp8();
  void warn_of_second_roundings();
  void warn_of_left_out();
  WeightFormat transformer_format() const { return {dtype_, fp8_weights_}; }
  at::ScalarType dtype_of(Precision precision) const { return precision == Precision::fp32 ? at::kFloat : dtype_; }
  Loading loading() const;
  const WeightNeed& transformer_need() const;
  bool fits_beside(const std::string& role) const;
  bool make_room() const;
  void denoise_stage(Denoising& denoising, const Run& run, Outcome& outcome);
  static bool keep_if_due(const Denoising& denoising, const Run& run);
  void check_latents(const at::Tensor& latents) const;
  LatentDistribution encode_frames(const at::Tensor& frames, const Run& run, bool& tiled) const;
  bool use_tiling(VaeTiling tiling, uint64_t untiled_bytes, bool shared = false) const;
  int64_t decoding_ranks(const at::Tensor& latents, VaeTiling tiling, Group* group, bool& tiled) const;
  Decoder decoder() const;
  at::Tensor round_trip(const Conditioning& conditioning, const Plan& plan, bool tiled);

  Checkpoint folder_;
  at::Device device_;
  at::ScalarType dtype_ = at::kFloat, vae_dtype_ = at::kFloat, encoder_dtype_ = at::kFloat;
  bool encodes_in_tf32_ = false;  // of latents, on a GPU
  bool fp8_weights_ = false, fp8_text_weights_ = false;
  std::string why_idle_weights_, why_idle_text_weights_;
  bool offload_ = false;
  std::map<std::string, std::string> files_;
  std::vector<LoraChoice> loras_;
  std::vector<std::string> weight_warnings_;
  mutable std::string model_hash_, lora_hash_;
  mutable std::optional<std::vector<PartFile>> part_files_;
  mutable bool weights_checked_ = false, image_weights_checked_ = false;
  mutable std::shared_ptr<const WeightNeed> weight_need_;  // null: not asked for yet
  Component vae_component_;
  ModelSpec spec_;
  std::unique_ptr<TextStage> text_;
  std::shared_ptr<Experts> experts_;
  std::unique_ptr<Vae> vae_;
};

}  // namespace sparsereel::models
