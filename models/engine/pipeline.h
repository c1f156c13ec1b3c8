// The pipeline from text to video. It orders the stages, draws the noise and divides the memory, in the same way for
// every family.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/conditioning.h"
#include "models/request/latents.h"
#include "models/request/memory_plan.h"
#include "models/request/outcome.h"
#include "models/request/request.h"
#include "models/request/run.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/part_files.h"

namespace sparsereel::models {

class Denoising;

class Experts;
class MemoryPolicy;
class TextStage;
struct Loading;
struct Picture;
struct WeightNeed;
struct StageEstimate;
struct MemoryFacts;
struct ModelFacts;
struct LatentDistribution;
struct Decoder;
class Vae;

class Pipeline {
 public:
  /// Opens a checkpoint. Reads only those fields of the request that decide the pipeline. Weights are loaded later,
  /// when a stage needs them.
  static std::shared_ptr<Pipeline> open(Checkpoint folder, const Request& request);
  static std::shared_ptr<Pipeline> open(const std::string& folder, const std::string& device, const std::string& dtype);
  Pipeline(Checkpoint folder, const Request& request);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }
  /// The next two functions return "auto", "fp8" or "int8": the value that the request asked for, or auto if no layer
  /// supports 8 bits.
  const std::string& weights() const { return weights_; }
  const std::string& text_weights() const { return text_weights_; }
  bool fp8_weights() const { return weights_ == "fp8"; }
  bool fp8_text_weights() const { return text_weights_ == "fp8"; }
  /// Returns the end of the sentence "weights fp8 has no effect ..." if the request asked for 8 bits but no layer
  /// supports them. Otherwise returns an empty string.
  const std::string& why_weights_have_no_effect() const { return why_weights_have_no_effect_; }
  const std::string& why_text_weights_have_no_effect() const { return why_text_weights_have_no_effect_; }
  /// Returns warnings about tensors of LoRAs and weight files that were left out, and about weights that are rounded
  /// twice.
  const std::vector<std::string>& weight_warnings() const { return weight_warnings_; }
  const ModelSpec& spec() const { return spec_; }
  std::string family() const;  // name of the family
  HeadCount heads() const { return {spec_.layers, spec_.heads}; }
  /// Returns the hash that store/checkpoint/model_hash.h defines. It covers the files that the request names, but not
  /// the LoRAs.
  const std::string& model_hash() const;
  const std::string& lora_hash() const;             // see hash_of()
  const std::vector<PartFile>& part_files() const;  // see store/checkpoint/part_files.h
  /// Checks the request against the checkpoint and the device, and fills in unset fields. Throws Error (bad input)
  /// naming the field and, for impossible sizes, the two nearest possible values. Also throws if video or weights
  /// cannot fit into memory. `decode` is as in Inputs. `ranks` is the number of ranks that make the video together.
  Plan resolve(const Request& request, bool decode = true, int64_t ranks = 1) const;
  /// Resolves without the check of memory, for videos that are only described or made elsewhere.
  Plan resolve_anywhere(const Request& request) const;
  /// Returns where the weights would stay while this GPU makes the plan's video. Without a GPU, assumes a GPU with
  /// max_vram; returns nothing if that is unset.
  std::optional<MemoryPlan> foreseen_memory(const Plan& plan, int64_t ranks = 1) const;
  /// Decides where weights stay while the plan's video is made, and reports the decision to the run's observer. Frees a
  /// loaded transformer that would take too much memory. generate() calls it for each video. To load only once for
  /// several videos, first call it with the plan of the largest video.
  void settle_memory(const Plan& plan, const Run& run = {});
  /// Estimates the stages of making the plan's video; see memory_need.h. Loads nothing.
  std::vector<StageEstimate> likely_stages(const Plan& plan, int64_t ranks = 1) const;
  /// Throws Error if the latents do not have the plan's shape. Undefined latents pass.
  void check_init_latents(const Plan& plan, const Latents& latents) const;
  /// Throws Error if this many ranks cannot make the video together.
  void check_ranks(const Plan& plan, int64_t ranks) const;
  /// Returns a warning if the plan's steps will take very long on this CPU; empty if they will not.
  std::string slow_warning(const Plan& plan) const;
  /// Makes the video. Here and below, `plan` comes from resolve(), or differs from such a plan only in prompts, seed,
  /// attention or cache. If the inputs come from encode(), `begun` is the outcome that encode() filled in.
  Outcome generate(const Plan& plan, const Inputs& inputs = {}, const Run& run = {}, Outcome begun = {});
  Outcome generate(const Request& request, const Inputs& inputs = {}, const Run& run = {}) {
    return generate(resolve(request, inputs.decode), inputs, run);
  }
  /// Decodes latents as saved (the model's layout, diffusers' scale) to frames as in Outcome. With automatic tiling, a
  /// decode that runs out of GPU memory is repeated in tiles. The sound, if its latents are given, is decoded before
  /// the frames. Throws Error if the latents do not have the model's number of channels, or if the frames hold NaN.
  Decoded decode(const Latents& latents, VaeTiling tiling, const Run& run = {});

  /// Opens all files and checks names and shapes of all weights by their headers. The files may be moved afterwards.
  /// Throws Error if something does not fit. `with_images` says if image encoders are checked, too; they always are if
  /// the model needs an image. Later calls check only what was not checked before.
  void check_weights(bool with_images = false) const;

  /// Runs the first stage of generate(): encodes texts and images. Adds times and warnings to `outcome`. While the text
  /// is encoded, the transformer may already load; see begin_transformer().
  Conditioning encode(const Plan& plan, const Inputs& inputs, const Run& run, Outcome& outcome);
  /// The following functions run parts of the stages, to measure each part or to run a part for many videos. Weights
  /// that they load stay in memory until they are released, unless a comment says otherwise.
  TextStage& text_stage() { return *text_; }
  /// Releases the text encoder, unless it can stay on the GPU without a change of the plan for the video that
  /// settle_memory() was called for. If it stays, the next text needs no loading.
  void release_text_if_tight();
  /// Adds the conditioning that comes from images. Encode the text afterwards, with the Conditioning::seen that this
  /// call sets. Loads the encoders for this call only. If memory is short, encodes frames in tiles, whatever vae_tiling
  /// says, and adds a warning. Polls `run` for cancellation after each tile or group of frames.
  void add_images(Conditioning& conditioning, const Plan& plan, const Images& images,
                  std::vector<std::string>* warnings = nullptr, const Run& run = {}) const;
  /// Loads the first transformer. Each step loads the transformer that the step needs, if that is not loaded.
  void load_transformer();
  /// Begins to load the first transformer in a separate thread, if a GPU has room for it beside the text encoder. Does
  /// nothing if the run `resumes` and there are several transformers, because the run may continue with another
  /// transformer than the first.
  void begin_transformer(bool resumes = false);
  bool has_transformer() const;  // true if any is loaded
  void release_transformer();
  /// Returns a denoising at its first step. The denoising must not outlive the pipeline. Loads nothing.
  std::unique_ptr<Denoising> start_denoising(const Plan& plan, const Conditioning& conditioning,
                                             const Latents& init_latents = {}, Group* group = nullptr);
  void load_vae();
  /// Decodes latents of a sound, as decode() does. Loads the decoder for this call only.
  Sound decode_sound(const at::Tensor& latents, const Run& run = {}) const;

 private:
  void drop_weights_without_effect();
  void warn_of_second_roundings();
  void warn_of_left_out();
  WeightFormat format_of(const std::string& weights) const;
  WeightFormat transformer_format() const;
  WeightFormat text_format() const;
  at::ScalarType dtype_of(Precision precision) const { return precision == Precision::fp32 ? at::kFloat : dtype_; }
  Loading loading() const;
  const WeightNeed& transformer_need() const;
  bool fits_beside(const std::string& role) const;
  bool make_room() const;
  const ModelFacts& known_model() const;
  MemoryFacts memory_facts(const Plan& plan, int64_t ranks) const;
  uint64_t held_bytes() const;
  void with_less_memory(const Run& run, int64_t step, Outcome& outcome, const std::function<void()>& work);
  void denoise_stage(Denoising& denoising, const Run& run, Outcome& outcome);
  static bool keep_if_due(const Denoising& denoising, const Run& run);
  void check_latents(const Latents& latents) const;
  void check_sound(const Latents& latents) const;
  LatentDistribution encode_frames(const at::Tensor& frames, const Run& run, bool& tiled) const;
  std::vector<at::Tensor> encode_keyframes(const std::vector<Picture>& pictures, const Run& run) const;
  void add_keyframes(Conditioning& conditioning, const Plan& plan, const Images& images, const Run& run) const;
  bool use_tiling(VaeTiling tiling, uint64_t untiled_bytes, bool shared = false) const;
  int64_t decoding_ranks(const at::Tensor& latents, VaeTiling tiling, Group* group, bool& tiled) const;
  Decoder decoder() const;
  at::Tensor round_trip(const Conditioning& conditioning, const Plan& plan, bool tiled);

  Checkpoint folder_;
  at::Device device_;
  at::ScalarType gpu_dtype_ = at::kBFloat16;  // dtype that a run on a GPU would have
  at::ScalarType dtype_ = at::kFloat, vae_dtype_ = at::kFloat, encoder_dtype_ = at::kFloat;
  bool encodes_in_tf32_ = false;  // true: a GPU encodes frames to latents in TF32
  std::string weights_, text_weights_;
  std::string why_weights_have_no_effect_, why_text_weights_have_no_effect_;
  std::unique_ptr<MemoryPolicy> memory_;
  std::optional<double> max_vram_;  // GiB, as in the request
  std::string told_memory_;         // text of the last memory plan that was reported to observers
  std::map<std::string, std::string> files_;
  std::vector<LoraChoice> loras_;
  std::vector<std::string> weight_warnings_;
  mutable std::string model_hash_, lora_hash_;
  mutable std::optional<std::vector<PartFile>> part_files_;
  mutable bool weights_checked_ = false, image_weights_checked_ = false;
  mutable std::shared_ptr<const WeightNeed> weight_need_;  // null until it is first needed, as is the next one
  mutable std::shared_ptr<const ModelFacts> model_facts_;
  Component vae_component_;
  ModelSpec spec_;
  std::unique_ptr<TextStage> text_;
  std::shared_ptr<Experts> experts_;
  std::unique_ptr<Vae> vae_;
};

}  // namespace sparsereel::models
