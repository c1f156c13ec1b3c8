// Opens a pipeline, resolves requests for it, and loads its parts.
#include "models/engine/pipeline.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/cpu_time.h"
#include "models/engine/denoising.h"
#include "models/engine/device_choices.h"
#include "models/engine/experts.h"
#include "models/engine/memory_need.h"
#include "models/engine/memory_policy.h"
#include "models/engine/text_stage.h"
#include "models/engine/weight_warnings.h"
#include "models/layers/fp8.h"
#include "models/request/resolve.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/checkpoint/model_hash.h"
#include "models/store/checkpoint/widened_input.h"
#include "models/store/weights/device.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

namespace {

/// Returns `text`. Throws Error naming the option `field` if `text` is not auto, fp8 or int8, or if the device cannot
/// run fp8.
std::string checked_weights(const std::string& field, const std::string& text, at::Device device) {
  if (text != "auto" && text != "fp8" && text != "int8")
    throw bad_option(field, text + ": auto, fp8 or int8 is needed", "use one of these");
  if (const std::string reason = text == "fp8" ? why_no_fp8(device) : ""; !reason.empty())
    throw bad_option(field, "fp8 cannot run on " + device.str() + ": " + reason, "use auto");
  return text;
}

Products products_of(const std::string& weights) {
  return weights == "fp8" ? Products::fp8 : weights == "int8" ? Products::int8 : Products::in_dtype;
}

}  // namespace

Pipeline::Pipeline(Checkpoint folder, const Request& request)
    : folder_(std::move(folder)),
      device_(resolve_device(request.device)),
      weights_(checked_weights("weights", request.weights, device_)),
      text_weights_(checked_weights("text_weights", request.text_weights, device_)),
      memory_(std::make_unique<MemoryPolicy>(device_, request.offload, request.max_vram)),
      max_vram_(request.max_vram),
      files_(request.files),
      loras_(request.loras),
      spec_(describe(folder_)) {
  drop_weights_without_effect();
  for (const auto& [role, file] : files_)
    if (!file.empty() && !folder_.is_of_files()) folder_.replace(role, file);
  if (widen_input(folder_, loras_)) {
    // Keep the fingerprint from before LoRAs were added, because it selects the file of configs/ that describes the
    // model.
    const auto fingerprint = std::exchange(spec_, describe(folder_)).fingerprint;
    spec_.fingerprint = fingerprint;
  }
  weight_warnings_ = add_loras(folder_, spec_, loras_, request.strict_lora);
  loras_ = with_experts(std::move(loras_), spec_);  // recipes store LoRAs with their experts
  experts_ = std::make_shared<Experts>(
      spec_, device_,
      [this](const std::string& role) {
        return std::shared_ptr<LoadedTransformer>(
            models::load_transformer(folder_.component(role), device_, transformer_format(), memory_->streaming()));
      },
      [this](const std::string& role) { return fits_beside(role); });
  dtype_ = resolve_dtype(request.dtype, device_, stored_dtype(folder_, spec_, files_));
  gpu_dtype_ = resolve_dtype(request.dtype, at::Device(at::kCUDA, 0), stored_dtype(folder_, spec_, files_));
  if (dtype_ == at::kHalf && spec_.overflows_in_fp16)
    throw bad_option("dtype", "fp16 is too small for the numbers in this model's transformer", "use bf16 or fp32");
  const bool vae_chooses = request.vae_dtype == "auto" || !spec_.takes_vae_dtype;
  vae_dtype_ = vae_chooses ? dtype_of(spec_.vae) : resolve_dtype(request.vae_dtype, device_, dtype_);
  encodes_in_tf32_ = vae_chooses;
  encoder_dtype_ = encodes_in_tf32_ ? at::kFloat : vae_dtype_;
  text_ = std::make_unique<TextStage>(folder_, spec_, device_, text_format(), *memory_);
  warn_of_second_roundings();
  warn_of_left_out();
}

Pipeline::~Pipeline() = default;

void Pipeline::drop_weights_without_effect() {
  const auto changes = [this](const std::string& role) { return has_fp8_layers(folder_, role); };
  const auto changes_expert = [&](const ExpertSpec& expert) { return changes(expert.role); };
  if (weights_ != "auto" && std::ranges::none_of(spec_.experts, changes_expert)) {
    weights_ = "auto";
    why_weights_have_no_effect_ = "for a transformer whose blocks have no layer with sizes that are multiples of 16";
  }
  if (text_weights_ != "auto" && !changes("text_encoder")) {
    text_weights_ = "auto";
    why_text_weights_have_no_effect_ = "for a text encoder without a layer whose sizes are multiples of 16";
  }
}

void Pipeline::warn_of_second_roundings() {
  const auto warn = [&](const std::string& field, const std::string& asked, const std::string& role) {
    if (asked != "auto" && rounds_again(folder_, role, format_of(asked)))
      weight_warnings_.push_back(field + " " + asked + " rounds weights of " + role +
                                 " a second time: its file already holds them packed or in 8 bits");
    if (std::string kept = kept_warning(folder_.component(role), field, asked, role); !kept.empty())
      weight_warnings_.push_back(std::move(kept));
  };
  for (const ExpertSpec& expert : spec_.experts) warn("weights", weights_, expert.role);
  warn("text_weights", text_weights_, "text_encoder");
}

WeightFormat Pipeline::format_of(const std::string& weights) const {
  return {dtype_, products_of(weights)};
}

/// With `auto`, a GPU multiplies int8 weights as they are, which is faster than in 16 bits; a CPU would gain nothing.
/// For text encoders it makes no difference, because they take little time.
WeightFormat Pipeline::transformer_format() const {
  if (weights_ == "auto" && !device_.is_cpu()) return {dtype_, Products::stored};
  return format_of(weights_);
}

WeightFormat Pipeline::text_format() const {
  return format_of(text_weights_);
}

std::string Pipeline::family() const {
  return find_family(folder_.pipeline_class())->name;
}

void Pipeline::warn_of_left_out() {
  for (const std::string& role : folder_.roles()) {
    if (!has_weights(role)) continue;
    try {
      if (const std::string& doubt = folder_.component(role).doubt; !doubt.empty()) weight_warnings_.push_back(doubt);
    } catch (const Error&) {
      continue;  // loading the part reports the error
    }
    if (std::string warning = left_out_warning(folder_, role, dtype_); !warning.empty())
      weight_warnings_.push_back(std::move(warning));
  }
}

const std::string& Pipeline::model_hash() const {
  // Compute the hash when it is first needed, because that reads every weight file.
  if (model_hash_.empty()) model_hash_ = models::model_hash(folder_);
  return model_hash_;
}

const std::vector<PartFile>& Pipeline::part_files() const {
  if (!part_files_) part_files_ = models::part_files(folder_);
  return *part_files_;
}

const std::string& Pipeline::lora_hash() const {
  if (lora_hash_.empty()) lora_hash_ = hash_of(loras_);
  return lora_hash_;
}

Plan Pipeline::resolve_anywhere(const Request& request) const {
  Plan plan = resolve_request(request, spec_);
  plan.device = device_.is_cpu() ? "cpu" : "cuda";
  plan.dtype = dtype_name(dtype_);
  plan.vae_dtype = dtype_name(vae_dtype_);
  plan.encodes_in_vae_dtype = !encodes_in_tf32_;
  plan.weights = weights_;
  plan.text_weights = text_weights_;
  plan.files = files_;
  plan.loras = loras_;
  plan.attention_mode = choose_attention_mode(request.attention_mode, device_, dtype_);
  return plan;
}

Plan Pipeline::resolve(const Request& request, bool decode, int64_t ranks) const {
  Plan plan = resolve_anywhere(request);
  folder_.tokenizer();  // first, because a missing tokenizer is an error for videos of any size
  check_memory(plan, least_memory(plan, decode, spec_, device_, dtype_, transformer_need(), ranks), device_,
               [&] { return lighter_loadings(folder_, spec_, loading()); });
  return plan;
}

void Pipeline::check_init_latents(const Plan& plan, const Latents& latents) const {
  const auto check = [](const char* what, const at::Tensor& given, const std::vector<int64_t>& shape) {
    if (!given.defined() || given.sizes() == at::IntArrayRef(shape)) return;
    std::ostringstream cause;
    cause << "has " << what << "shape " << given.sizes() << ", but this run needs " << at::IntArrayRef(shape);
    throw bad_option("init_latents", cause.str(),
                     "give latents of that shape, or a size and frame count that fit them");
  };
  check("", latents.video, latents_shape(spec_, plan.latent));
  if (spec_.sound.any()) check("latents of a sound of ", latents.sound, sound_latents_shape(spec_, plan.latent));
}

std::string Pipeline::slow_warning(const Plan& plan) const {
  if (!device_.is_cpu()) return {};
  const auto steps = static_cast<double>(plan.num_inference_steps);
  return models::slow_warning("the " + std::to_string(plan.num_inference_steps) + " steps of a video",
                              steps * step_operations(plan, spec_, transformer_need().parameters), dtype_);
}

void Pipeline::load_transformer() {
  Outcome nobodys;
  with_less_memory({}, /*step=*/0, nobodys, [this] { experts_->load(0); });
}

void Pipeline::begin_transformer(bool resumes) {
  if (device_.is_cpu() || memory_->streams() || has_transformer()) return;
  if (resumes && experts_->size() > 1) return;
  if (text_->fits_beside(weight_bytes(folder_, spec_.experts.front().role, transformer_format()))) experts_->begin(0);
}

bool Pipeline::has_transformer() const {
  return experts_->any_loaded();
}

void Pipeline::release_transformer() {
  experts_->release();
}

void Pipeline::check_weights(bool with_images) const {
  if (!weights_checked_) {
    for (const ExpertSpec& expert : spec_.experts)
      models::load_transformer(folder_.component(expert.role), at::kMeta, transformer_format());
    models::load_vae(folder_.component("vae"), at::kMeta, vae_dtype_);
    if (spec_.sound.any()) load_sound_vae(folder_.component(kSoundVae), at::kMeta);
    text_->check();
    weights_checked_ = true;
  }
  if (image_weights_checked_ || !(with_images || spec_.image.needed)) return;
  models::load_vae(folder_.component("vae"), at::kMeta, encoder_dtype_, VaeParts::encoder);
  if (spec_.image.has_context) load_image_encoder(folder_.component("image_encoder"), at::kMeta, at::kFloat);
  text_->check_vision();
  image_weights_checked_ = true;
}

void Pipeline::check_ranks(const Plan& plan, int64_t ranks) const {
  models::check_ranks(ranks, plan.is_guided() ? 2 : 1, spec_.heads, token_grid(spec_, plan.latent).size());
}

std::shared_ptr<Pipeline> Pipeline::open(Checkpoint folder, const Request& request) {
  return std::make_shared<Pipeline>(std::move(folder), request);
}

std::shared_ptr<Pipeline> Pipeline::open(const std::string& folder, const std::string& device,
                                         const std::string& dtype) {
  return open(Checkpoint::open(folder), {.device = device, .dtype = dtype});
}

}  // namespace sparsereel::models
