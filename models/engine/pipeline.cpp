// The stages, one after the other.
#include "models/engine/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/cpu_time.h"
#include "models/engine/decode_stage.h"
#include "models/engine/denoising.h"
#include "models/engine/device_choices.h"
#include "models/engine/experts.h"
#include "models/engine/frames.h"
#include "models/engine/image_stage.h"
#include "models/engine/memory_need.h"
#include "models/engine/text_stage.h"
#include "models/engine/tile_retry.h"
#include "models/engine/unless_cancelled.h"
#include "models/engine/whole_files.h"
#include "models/image/processor_config.h"
#include "models/layers/fp8.h"
#include "models/parallel/share.h"
#include "models/request/plan.h"
#include "models/samplers/noise.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/checkpoint/model_hash.h"
#include "models/store/weights/device.h"
#include "models/store/weights/tensor_source.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {

namespace {

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

/// `field`: the option's.
bool wants_fp8(const std::string& field, const std::string& text, at::Device device) {
  if (text == "auto") return false;
  if (text != "fp8") throw bad_option(field, text + ": auto or fp8 is needed", "use one of these");
  if (const std::string reason = why_no_fp8(device); !reason.empty())
    throw bad_option(field, "fp8 cannot run on " + device.str() + ": " + reason, "use auto");
  return true;
}

/// The class's defaults for pictures of the encoder's size where the checkpoint has none.
ImageProcessorConfig image_processor(const Checkpoint& folder, const ImageEncoder& encoder) {
  constexpr const char* kRole = "image_processor";
  if (std::ranges::count(folder.roles(), kRole) == 0) return {.crop_size = encoder.image_size()};
  std::string file;
  const nlohmann::json config = folder.config(kRole, &file);
  return parse_image_processor_config(config, file);
}

bool is_cancelled(const Run& run) {
  return run.cancelled && run.cancelled();
}

/// Called by all ranks: the state of several is made by all of them.
void keep_state(const Denoising& denoising, const Run& run) {
  if (run.group == nullptr && !run.checkpoint) return;
  const DenoisingState state = denoising.state();
  if (run.checkpoint) run.checkpoint(state);
}

/// Called by all ranks. Keeps the steps that are done, where that is wanted, and throws Cancelled.
[[noreturn]] void stop_denoising(const Denoising& denoising, const Run& run) {
  if (run.checkpoints.cancelled && denoising.done() > 0) keep_state(denoising, run);
  throw Cancelled{};
}

/// Loads the expert of the next step; returns whether it was not there. Other ranks load theirs at the same time.
bool load_or_stop(Denoising& denoising, const Run& run) {
  bool loaded = false;
  try {
    do_unless_cancelled(run.group == nullptr ? run.cancelled : nullptr, [&] { loaded = denoising.load_expert(); });
  } catch (const Cancelled&) {
    stop_denoising(denoising, run);
  }
  return loaded;
}

/// A step that is cancelled within leaves the denoising as it was before.
void step_or_stop(Denoising& denoising, const Run& run) {
  try {
    denoising.step();
  } catch (const Cancelled&) {
    if (run.group != nullptr) throw;  // thrown by this rank's observer: the others make no state
    stop_denoising(denoising, run);
  }
}

}  // namespace

Pipeline::Pipeline(Checkpoint folder, const Request& request)
    : folder_(std::move(folder)),
      device_(resolve_device(request.device)),
      fp8_weights_(wants_fp8("weights", request.weights, device_)),
      fp8_text_weights_(wants_fp8("text_weights", request.text_weights, device_)),
      offload_(request.offload && !device_.is_cpu()),
      files_(request.files),
      loras_(request.loras),
      spec_(describe(folder_)) {
  drop_idle_fp8();
  for (const auto& [role, file] : files_)
    if (!file.empty() && !folder_.is_of_files()) folder_.replace(role, file);
  weight_warnings_ = add_loras(folder_, spec_, loras_, request.strict_lora);
  loras_ = with_experts(std::move(loras_), spec_);  // as recipes hold them
  experts_ = std::make_shared<Experts>(
      spec_, device_,
      [this](const std::string& role) {
        return std::shared_ptr<Denoiser>(
            models::load_transformer(folder_.component(role), device_, transformer_format(), offload_));
      },
      [this](const std::string& role) { return fits_beside(role); });
  dtype_ = resolve_dtype(request.dtype, device_, stored_dtype(folder_, spec_, files_));
  vae_dtype_ = request.vae_dtype == "auto" ? dtype_of(spec_.vae) : resolve_dtype(request.vae_dtype, device_, dtype_);
  encodes_in_tf32_ = request.vae_dtype == "auto";
  encoder_dtype_ = encodes_in_tf32_ ? at::kFloat : vae_dtype_;
  text_ = std::make_unique<TextStage>(folder_, spec_, device_, WeightFormat{dtype_, fp8_text_weights_}, offload_);
  warn_of_second_roundings();
  warn_of_left_out();
}

Pipeline::~Pipeline() = default;

void Pipeline::drop_idle_fp8() {
  const auto changes = [this](const std::string& role) { return has_fp8_layers(folder_, role); };
  const auto changes_expert = [&](const ExpertSpec& expert) { return changes(expert.role); };
  if (fp8_weights_ && std::ranges::none_of(spec_.experts, changes_expert)) {
    fp8_weights_ = false;
    why_idle_weights_ = "for a transformer without a block layer whose sizes are multiples of 16";
  }
  if (fp8_text_weights_ && !changes("text_encoder")) {
    fp8_text_weights_ = false;
    why_idle_text_weights_ = "for a text encoder without a layer whose sizes are multiples of 16";
  }
}

void Pipeline::warn_of_second_roundings() {
  const auto warn = [&](const char* field, const std::string& role) {
    if (rounds_again(folder_, role, {dtype_, /*in_fp8=*/true}))
      weight_warnings_.push_back(std::string(field) + " fp8 rounds weights of " + role +
                                 " a second time: its file has them packed or in 8 bits");
  };
  if (fp8_weights_)
    for (const ExpertSpec& expert : spec_.experts) warn("weights", expert.role);
  if (fp8_text_weights_) warn("text_weights", "text_encoder");
}

std::string Pipeline::family() const {
  return find_family(folder_.pipeline_class())->name;
}

void Pipeline::warn_of_left_out() {
  for (const std::string& role : folder_.roles()) {
    if (!has_weights(role)) continue;
    if (std::string warning = left_out_warning(folder_, role, dtype_); !warning.empty())
      weight_warnings_.push_back(std::move(warning));
  }
}

const std::string& Pipeline::model_hash() const {
  if (model_hash_.empty()) model_hash_ = models::model_hash(folder_);  // not before: it needs every weight file
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
  plan.fp8_weights = fp8_weights_;
  plan.fp8_text_weights = fp8_text_weights_;
  plan.files = files_;
  plan.loras = loras_;
  plan.attention_mode = choose_attention_mode(request.attention_mode, device_, dtype_);
  return plan;
}

Plan Pipeline::resolve(const Request& request, bool decode, int64_t ranks) const {
  Plan plan = resolve_anywhere(request);
  folder_.tokenizer();  // no other size makes up for one that is missing
  check_memory(plan, least_memory(plan, decode, spec_, device_, dtype_, transformer_need(), ranks), device_,
               [&] { return lighter_loadings(folder_, spec_, loading()); });
  return plan;
}

std::vector<StageEstimate> Pipeline::likely_stages(const Plan& plan, int64_t ranks) const {
  const RunFormat format = {
      .transformer = loading(), .text = {dtype_, fp8_text_weights_}, .vae = vae_dtype_, .encoder = encoder_dtype_};
  return models::likely_stages(folder_, spec_, plan, format, ranks);
}

void Pipeline::check_init_latents(const Plan& plan, const at::Tensor& latents) const {
  const std::vector<int64_t> shape = latents_shape(spec_, plan.latent);
  if (!latents.defined() || latents.sizes() == at::IntArrayRef(shape)) return;
  std::ostringstream cause;
  cause << "has shape " << latents.sizes() << ", this run needs " << at::IntArrayRef(shape);
  throw bad_option("init_latents", cause.str(), "give latents of that shape, or a size and frame count that fit them");
}

Loading Pipeline::loading() const {
  return {.device = device_, .format = transformer_format(), .offload = offload_};
}

const WeightNeed& Pipeline::transformer_need() const {
  if (!weight_need_) weight_need_ = std::make_shared<const WeightNeed>(weight_need(folder_, spec_, loading()));
  return *weight_need_;
}

std::string Pipeline::slow_warning(const Plan& plan) const {
  if (!device_.is_cpu()) return {};
  const auto steps = static_cast<double>(plan.num_inference_steps);
  return models::slow_warning("the " + std::to_string(plan.num_inference_steps) + " steps of a video",
                              steps * step_operations(plan, spec_, transformer_need().parameters), dtype_);
}

void Pipeline::load_transformer() {
  experts_->load(0);
}

void Pipeline::begin_transformer(bool resumes) {
  if (device_.is_cpu() || offload_ || has_transformer()) return;
  if (resumes && experts_->size() > 1) return;
  if (text_->fits_beside(weight_bytes(folder_, spec_.experts.front().role, transformer_format()))) experts_->begin(0);
}

bool Pipeline::has_transformer() const {
  return experts_->any_loaded();
}

void Pipeline::release_transformer() {
  experts_->release();
}

/// A quarter of the free memory stays free for what the steps hold.
bool Pipeline::fits_beside(const std::string& role) const {
  return weight_bytes(folder_, role, transformer_format()) <=
         free_memory(offload_ ? at::Device(at::kCPU) : device_) / 4 * 3;
}

/// Of the denoiser. False: there was none.
bool Pipeline::make_room() const {
  const bool had_transformer = has_transformer();
  experts_->release();
  return had_transformer;
}

void Pipeline::load_vae() {
  if (vae_) return;
  vae_component_ = folder_.component("vae");
  vae_ = models::load_vae(vae_component_, device_, vae_dtype_);
}

void Pipeline::check_weights(bool with_images) const {
  if (!weights_checked_) {
    for (const ExpertSpec& expert : spec_.experts)
      models::load_transformer(folder_.component(expert.role), at::kMeta, transformer_format());
    models::load_vae(folder_.component("vae"), at::kMeta, vae_dtype_);
    text_->check();
    weights_checked_ = true;
  }
  if (image_weights_checked_ || !(with_images || spec_.image.needed)) return;
  models::load_vae(folder_.component("vae"), at::kMeta, encoder_dtype_, VaeParts::encoder);
  if (spec_.image.has_context) load_image_encoder(folder_.component("image_encoder"), at::kMeta, at::kFloat);
  image_weights_checked_ = true;
}

LatentDistribution Pipeline::encode_frames(const at::Tensor& frames, const Run& run, bool& tiled) const {
  const auto vae = models::load_vae(folder_.component("vae"), device_, encoder_dtype_, VaeParts::encoder);
  const Tf32Convolutions tf32(encodes_in_tf32_);
  const auto progress = [&](int64_t done, int64_t total) {
    if (run.encode) run.encode(done, total);
    if (run.cancelled && run.cancelled()) throw Cancelled{};
  };
  tiled = use_tiling(VaeTiling::automatic, vae->untiled_encode_bytes(frames.size(2), frames.size(3), frames.size(4)));
  LatentDistribution latents;
  work_or_retry_tiled(
      tiled, /*may_tile=*/true,
      [&](bool in_tiles) {
        do_unless_cancelled(run.cancelled, [&] {
          read_whole(folder_, {"vae"}, device_, [&] { latents = vae->encode(frames, in_tiles, progress); });
        });
      },
      [this] { return make_room(); });
  return latents;
}

void Pipeline::add_images(Conditioning& conditioning, const Plan& plan, const Images& images,
                          std::vector<std::string>* warnings, const Run& run) const {
  const c10::InferenceMode guard;
  check_images({.first = images.first != nullptr, .last = images.last != nullptr}, plan.latent.frames, spec_);
  if (spec_.image.has_context) {
    const auto encoder = load_image_encoder(folder_.component("image_encoder"), device_, at::kFloat);
    read_whole(folder_, {"image_encoder"}, device_,
               [&] { conditioning.context = context_of(images, *encoder, image_processor(folder_, *encoder)); });
  }
  const auto options = at::TensorOptions().device(device_).dtype(encoder_dtype_);
  bool tiled = false;
  LatentDistribution latents = encode_frames(known_frames(images, plan, spec_, options), run, tiled);
  if (tiled && warnings != nullptr)
    warnings->push_back(std::string(offload_ ? "with offload" : "memory was short:") +
                        " images were encoded in tiles, which gives a slightly different video");
  latents.mean = latents.mean.to(at::kFloat);
  if (!spec_.image.drawn) latents.deviation.reset();
  add_latents(conditioning, latents, images.last != nullptr, plan, spec_);
}

Conditioning Pipeline::encode(const Plan& plan, const Inputs& inputs, const Run& run, Outcome& outcome) {
  const c10::InferenceMode guard;
  const Images& images = inputs.images;
  StageMeter meter(device_);
  if (run.stage) run.stage("text");
  // What is made of images depends on the memory that is free.
  if (!images.first) begin_transformer(/*resumes=*/inputs.resume != nullptr);
  text_->load();
  outcome.seconds.load_text_encoder = meter.lap();
  Conditioning conditioning = text_->encode(plan, &outcome.warnings);
  text_->release();
  if (images.first) {
    if (run.stage) run.stage("image");
    add_images(conditioning, plan, images, &outcome.warnings, run);
  }
  outcome.seconds.text = meter.lap();
  outcome.memory.text = meter.take_peak();
  return conditioning;
}

std::unique_ptr<Denoising> Pipeline::start_denoising(const Plan& plan, const Conditioning& conditioning,
                                                     const at::Tensor& init_latents, Group* group) {
  const c10::InferenceMode guard;
  if (group != nullptr) check_ranks(plan, group->size());
  if (!plan.image.empty() && !conditioning.latents.defined())
    throw bad_option("image", plan.image + " is no part of what the video is made from here", "leave it out");
  if (!conditioning.latents.defined()) check_images({}, plan.latent.frames, spec_);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(plan.seed);
  Conditioning drawn = conditioning;
  draw_latents(drawn, spec_.layout, dtype_of(spec_.noise), generator);
  const auto noise = [&] { return draw_noise(latents_shape(spec_, plan.latent), dtype_of(spec_.noise), generator); };
  const at::Tensor latents = init_latents.defined() ? init_latents : noise();
  return std::make_unique<Denoising>(experts_, scheduler_config(plan, spec_), plan,
                                     DenoisingStart{.conditioning = drawn.to(device_),
                                                    .latents = latents.to(device_, dtype_of(spec_.latents)),
                                                    .generator = generator,
                                                    .layout = spec_.layout,
                                                    .group = group});
}

void Pipeline::check_ranks(const Plan& plan, int64_t ranks) const {
  models::check_ranks(ranks, plan.is_guided() ? 2 : 1, spec_.heads, token_grid(spec_, plan.latent).size());
}

/// Returns whether a state was made. Several ranks make it together.
bool Pipeline::keep_if_due(const Denoising& denoising, const Run& run) {
  const CheckpointTimes& times = run.checkpoints;
  const bool due = (times.last && denoising.finished()) || (times.every > 0 && denoising.done() % times.every == 0);
  if (due) keep_state(denoising, run);
  return due;
}

void Pipeline::denoise_stage(Denoising& denoising, const Run& run, Outcome& outcome) {
  denoising.attention().watcher = run.attention;
  denoising.attention().attended = [&] {
    if (run.within) run.within(denoising.done());
    // Several ranks agree between steps alone: one that left a step would leave the others waiting in an exchange.
    if (run.group == nullptr && is_cancelled(run)) throw Cancelled{};
  };
  std::vector<std::string> transformers;
  for (const ExpertSpec& expert : spec_.experts) transformers.push_back(expert.role);
  StageMeter meter(device_);
  while (!denoising.finished()) {
    if (any_rank(is_cancelled(run), run.group, device_)) stop_denoising(denoising, run);
    if (load_or_stop(denoising, run)) outcome.seconds.switch_transformer += meter.lap();
    read_whole(folder_, transformers, device_, [&] { step_or_stop(denoising, run); });
    outcome.seconds.steps.push_back(meter.lap());
    if (run.step) run.step(denoising.done(), denoising.steps(), outcome.seconds.steps.back());
    if (keep_if_due(denoising, run)) outcome.seconds.keep += meter.lap();
  }
  outcome.attention = std::move(denoising.attention());
  outcome.attention.watcher = nullptr;  // the outcome outlives what the run refers to
  outcome.attention.attended = nullptr;
  outcome.warnings.insert(outcome.warnings.end(), denoising.warnings().begin(), denoising.warnings().end());
}

Outcome Pipeline::generate(const Plan& plan, const Inputs& inputs, const Run& run, Outcome begun) {
  const c10::InferenceMode guard;
  check_init_latents(plan, inputs.init_latents);
  if (run.group != nullptr) check_ranks(plan, run.group->size());
  Outcome outcome = std::move(begun);
  StageMeter meter(device_);
  check_weights(inputs.images.first != nullptr);
  outcome.seconds.check = meter.lap();
  const auto announce = [&](const char* stage) {
    if (run.stage) run.stage(stage);
  };
  const Conditioning conditioning =
      inputs.conditioning.defined() ? inputs.conditioning : encode(plan, inputs, run, outcome);
  meter.lap();  // encode() has measured its own time
  announce("load");
  auto denoising = start_denoising(plan, conditioning, inputs.init_latents, run.group);
  if (inputs.resume) denoising->resume(*inputs.resume);
  denoising->load_expert();
  outcome.seconds.load_transformer = meter.lap();
  const uint64_t loading = meter.take_peak();
  announce("denoise");
  denoise_stage(*denoising, run, outcome);
  const at::Tensor latents = denoising->latents();
  denoising.reset();  // its memory is the decoder's
  if (!inputs.keep_transformer) release_transformer();
  outcome.latents = latents.to(at::kCPU).contiguous();
  outcome.seconds.denoise = meter.lap() - outcome.seconds.switch_transformer - outcome.seconds.keep;
  outcome.memory.denoise = std::max(loading, meter.take_peak());
  const bool is_first = run.group == nullptr || run.group->rank() == 0;
  if (is_first && run.latents) run.latents(outcome);
  outcome.seconds.keep += meter.lap();
  if (!inputs.decode || (!is_first && plan.vae_tiling == VaeTiling::on)) {
    go_on_alone(run);
    return outcome;
  }
  announce("decode");
  load_vae();
  outcome.seconds.load_vae = meter.lap();
  Decoded decoded = decode(latents, plan.vae_tiling, run);
  outcome.frames = std::move(decoded.frames);
  outcome.facts = std::move(decoded.facts);
  outcome.vae_tiled = decoded.tiled;
  if (is_first && conditioning.latents.defined()) outcome.image = round_trip(conditioning, plan, decoded.tiled);
  if (!decoded.warning.empty()) outcome.warnings.push_back(decoded.warning);
  outcome.seconds.decode = meter.lap();
  outcome.memory.decode = meter.take_peak();
  return outcome;
}

/// untiled_bytes: what it takes otherwise. shared: in pieces by several ranks.
bool Pipeline::use_tiling(VaeTiling tiling, uint64_t untiled_bytes, bool shared) const {
  if (tiling != VaeTiling::automatic) return tiling == VaeTiling::on;
  if (offload_ && !shared) return true;  // who offloads wants little memory in use, whatever is free
  // A quarter of the free memory stays free for what the estimate does not see.
  return untiled_bytes > free_memory(device_) / 4 * 3;
}

/// Of the group's first ranks, how many have a piece of the height: 1 where rank 0 decodes alone, in tiles or not. What
/// several ranks have the memory for together needs no tiles. Called by all.
int64_t Pipeline::decoding_ranks(const at::Tensor& latents, VaeTiling tiling, Group* group, bool& tiled) const {
  const int64_t rows = latents.size(3);
  const bool shared = group != nullptr && tiling != VaeTiling::on && vae_->decodes_pieces();
  const int64_t ranks = shared ? std::min(group->size(), rows) : 1;
  const uint64_t bytes = vae_->untiled_bytes(latents.size(2), piece_of_height(rows, ranks), latents.size(4));
  const int64_t sharing = device_.is_cpu() ? ranks : 1;  // of the same memory
  tiled = use_tiling(tiling, bytes * static_cast<uint64_t>(sharing), ranks > 1);
  if (ranks > 1) tiled = any_rank(tiled, group, device_);
  return tiled ? 1 : ranks;
}

void Pipeline::check_latents(const at::Tensor& latents) const {
  const int64_t channels = spec_.latent_channels, axis = channels_axis(spec_.layout);
  if (latents.dim() == 5 && latents.size(0) == 1 && latents.size(axis) == channels) return;
  std::ostringstream cause;
  cause << "latents of shape " << latents.sizes() << " do not fit this model: [1, " << (axis == 2 ? "frames, " : "")
        << channels << (axis == 1 ? ", frames" : "") << ", height, width] is needed";
  throw bad_input(cause.str(), "decode them with the checkpoint that made them");
}

Decoded Pipeline::decode(const at::Tensor& latents, VaeTiling tiling, const Run& run) {
  const c10::InferenceMode guard;
  check_latents(latents);
  load_vae();
  at::Tensor there = latents.to(device_, vae_dtype_);
  if (spec_.layout == LatentLayout::frames_first) there = there.permute({0, 2, 1, 3, 4});
  bool tiled = false;
  const int64_t ranks = decoding_ranks(there, tiling, run.group, tiled);
  const int64_t rank = run.group == nullptr ? 0 : run.group->rank();
  Decoded result;
  read_whole(folder_, {"vae"}, device_, [&] {
    if (ranks > 1) {
      const std::shared_ptr<Group> decoders = first_ranks(*run.group, ranks);
      if (rank < ranks) result = decode_together(decoder(), there, run, *decoders);
    } else if (rank == 0) {
      result =
          decode_alone(decoder(), there, tiled, tiling == VaeTiling::automatic, run, [this] { return make_room(); });
    }
  });
  if (rank == 0) check_numbers(result.facts, dtype_);
  return result;
}

Decoder Pipeline::decoder() const {
  return {.vae = *vae_, .pixels = {spec_.stride[1], spec_.stride[2]}, .device = device_};
}

at::Tensor Pipeline::round_trip(const Conditioning& conditioning, const Plan& plan, bool tiled) {
  const at::Tensor latent = first_latent(conditioning, plan, spec_).to(device_, at::kFloat) * vae_->encoded_scale();
  try {
    return shown_frames(vae_->decode(latent.to(vae_dtype_), tiled)).to(at::kCPU);
  } catch (const c10::OutOfMemoryError&) {
    return {};  // the video is there
  }
}

std::shared_ptr<Pipeline> Pipeline::open(Checkpoint folder, const Request& request) {
  return std::make_shared<Pipeline>(std::move(folder), request);
}

std::shared_ptr<Pipeline> Pipeline::open(const std::string& folder, const std::string& device,
                                         const std::string& dtype) {
  return open(Checkpoint::open(folder), {.device = device, .dtype = dtype});
}

}  // namespace sparsereel::models
