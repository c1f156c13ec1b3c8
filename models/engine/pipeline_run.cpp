// Makes a video, stage by stage: text and images, denoising, decoding.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/decode_stage.h"
#include "models/engine/denoising.h"
#include "models/engine/experts.h"
#include "models/engine/frames.h"
#include "models/engine/image_stage.h"
#include "models/engine/memory_policy.h"
#include "models/engine/pipeline.h"
#include "models/engine/stage_meter.h"
#include "models/engine/text_stage.h"
#include "models/engine/tile_retry.h"
#include "models/engine/unless_cancelled.h"
#include "models/engine/whole_files.h"
#include "models/parallel/share.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/request/outcome.h"
#include "models/request/resolve.h"
#include "models/request/run.h"
#include "models/samplers/noise.h"
#include "models/store/checkpoint/family.h"
#include "models/vae/sound_vae.h"

namespace sparsereel::models {
namespace {

/// Passes the denoising's state to the observer, which saves it. All ranks call this, because they collect the state
/// together.
void keep_state(const Denoising& denoising, const Run& run) {
  if (run.group == nullptr && run.observer == nullptr) return;
  const DenoisingState state = denoising.state();
  run.tell().checkpoint(state);
}

/// Saves the finished steps if CheckpointTimes::cancelled is set, and throws Cancelled. All ranks call this.
[[noreturn]] void stop_denoising(const Denoising& denoising, const Run& run) {
  if (run.checkpoints.cancelled && denoising.done() > 0) keep_state(denoising, run);
  throw Cancelled{};
}

/// Loads the expert of the next step, on all ranks at the same time. Returns true if the expert was not loaded before.
bool load_or_stop(Denoising& denoising, const Run& run) {
  bool loaded = false;
  try {
    do_unless_cancelled(run.group == nullptr ? run.cancelled : nullptr, [&] { loaded = denoising.load_expert(); });
  } catch (const Cancelled&) {
    stop_denoising(denoising, run);
  }
  return loaded;
}

/// Makes one step, or throws Cancelled if the run is cancelled. A step that is cancelled halfway leaves the denoising
/// unchanged.
void step_or_stop(Denoising& denoising, const Run& run) {
  try {
    denoising.step();
  } catch (const Cancelled&) {
    // This rank's own observer threw it, so the other ranks do not take part in saving.
    if (run.group != nullptr) throw;
    stop_denoising(denoising, run);
  }
}

}  // namespace

Conditioning Pipeline::encode(const Plan& plan, const Inputs& inputs, const Run& run, Outcome& outcome) {
  const c10::InferenceMode guard;
  StageMeter meter(device_);
  Conditioning images;
  // Images come first for two reasons: the free memory decides how they are encoded, so nothing may be loaded
  // meanwhile; and the text encoder may need their encoded form (Conditioning::seen).
  if (inputs.images.any()) {
    run.tell().stage("image");
    add_images(images, plan, inputs.images, &outcome.warnings, run);
  }
  const double of_images = meter.lap();
  run.tell().stage("text");
  begin_transformer(/*resumes=*/inputs.resume != nullptr);
  text_->load();
  outcome.seconds.load_text_encoder = meter.lap();
  Conditioning conditioning = text_->encode(plan, &outcome.warnings, images.seen);
  text_->release();
  conditioning.take_video(images);
  outcome.seconds.text = of_images + meter.lap();
  outcome.memory.text = meter.take_peak();
  for (const std::string& warning : outcome.warnings) run.tell().warning(warning);
  return conditioning;
}

std::unique_ptr<Denoising> Pipeline::start_denoising(const Plan& plan, const Conditioning& conditioning,
                                                     const Latents& init_latents, Group* group) {
  const c10::InferenceMode guard;
  if (group != nullptr) check_ranks(plan, group->size());
  if (plan.has_images() && !conditioning.has_images())
    throw bad_option("image", plan.first_given() + " is not among the encoded inputs of this video", "leave it out");
  if (!conditioning.has_images()) check_images({}, plan.latent.frames, spec_);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(plan.seed);
  Conditioning drawn = conditioning;
  if (!conditioning.latents.defined() && spec_.image.latents == ImageSpec::Latents::beside_noise)
    drawn.latents = latents_without_image(plan, spec_);
  draw_latents(drawn, spec_.layout, dtype_of(spec_.noise), generator);
  draw_keyframes(drawn, spec_.image, generator);
  const auto given_or_noise = [&](const at::Tensor& given, const std::vector<int64_t>& shape, Precision precision) {
    return given.defined() ? given : draw_noise(shape, dtype_of(precision), generator);
  };
  const at::Tensor latents = given_or_noise(init_latents.video, latents_shape(spec_, plan.latent), spec_.noise);
  DenoisingStart start = {.conditioning = drawn.to(device_),
                          .latents = latents.to(device_, dtype_of(spec_.latents)),
                          .generator = generator,
                          .layout = spec_.layout,
                          .group = group};
  if (spec_.sound.any()) {
    start.sound = given_or_noise(init_latents.sound, sound_latents_shape(spec_, plan.latent), Precision::fp32)
                      .to(device_, at::kFloat);
    start.sound_scheduler = sound_scheduler_config(plan, spec_);
  }
  return std::make_unique<Denoising>(experts_, scheduler_config(plan, spec_), plan, std::move(start));
}

/// Saves the state if CheckpointTimes asks for it after this step, and returns true if it was saved. All ranks call
/// this.
bool Pipeline::keep_if_due(const Denoising& denoising, const Run& run) {
  const CheckpointTimes& times = run.checkpoints;
  const bool due = (times.last && denoising.finished()) || (times.every > 0 && denoising.done() % times.every == 0);
  if (due) keep_state(denoising, run);
  return due;
}

void Pipeline::denoise_stage(Denoising& denoising, const Run& run, Outcome& outcome) {
  RunObserver& observer = run.tell();
  if (observer.wants_attention_calls())
    denoising.attention().watcher = [&](const AttentionCall& call) { observer.attention_call(call); };
  denoising.attention().attended = [&] {
    observer.within_step({.step = denoising.done(), .steps = denoising.steps()});
    // With several ranks, cancellation is checked only between steps: if one rank left within a step, the others would
    // wait for it in an exchange.
    if (run.group == nullptr && run.is_cancelled()) throw Cancelled{};
  };
  std::vector<std::string> transformers;
  for (const ExpertSpec& expert : spec_.experts) transformers.push_back(expert.role);
  StageMeter meter(device_);
  size_t told = denoising.warnings().size();  // a resumed run has already reported the warnings of earlier steps
  while (!denoising.finished()) {
    if (any_rank(run.is_cancelled(), run.group, device_)) stop_denoising(denoising, run);
    with_less_memory(run, denoising.done(), outcome, [&] {
      if (load_or_stop(denoising, run)) outcome.seconds.switch_transformer += meter.lap();
      read_whole(folder_, transformers, device_, [&] { step_or_stop(denoising, run); });
    });
    outcome.seconds.steps.push_back(meter.lap());
    for (; told < denoising.warnings().size(); ++told) observer.warning(denoising.warnings()[told]);
    observer.step({.step = denoising.done(),
                   .steps = denoising.steps(),
                   .seconds = outcome.seconds.steps.back(),
                   .predicted_latents = [&] { return denoising.predicted_latents(); }});
    if (keep_if_due(denoising, run)) outcome.seconds.keep += meter.lap();
  }
  outcome.attention = std::move(denoising.attention());
  outcome.attention.watcher = nullptr;  // the outcome outlives the objects that these callbacks refer to
  outcome.attention.attended = nullptr;
  outcome.warnings.insert(outcome.warnings.end(), denoising.warnings().begin(), denoising.warnings().end());
}

Outcome Pipeline::generate(const Plan& plan, const Inputs& inputs, const Run& run, Outcome begun) {
  const c10::InferenceMode guard;
  check_init_latents(plan, inputs.init_latents);
  if (run.group != nullptr) check_ranks(plan, run.group->size());
  Outcome outcome = std::move(begun);
  StageMeter meter(device_);
  check_weights(inputs.images.any());
  outcome.seconds.check = meter.lap();
  settle_memory(plan, run);  // waits for a transformer that is being loaded
  const double waited = meter.lap();
  const Conditioning conditioning =
      inputs.conditioning.defined() ? inputs.conditioning : encode(plan, inputs, run, outcome);
  meter.lap();  // starts a new lap, because encode() has measured its own time
  run.tell().stage("load");
  auto denoising = start_denoising(plan, conditioning, inputs.init_latents, run.group);
  if (inputs.resume) denoising->resume(*inputs.resume);
  with_less_memory(run, denoising->done(), outcome, [&] { denoising->load_expert(); });
  outcome.seconds.load_transformer = waited + meter.lap();
  const uint64_t loading = meter.take_peak();
  run.tell().stage("denoise");
  denoise_stage(*denoising, run, outcome);
  const Latents latents = {denoising->latents(), denoising->sound()};
  denoising.reset();  // frees memory for the decoder
  outcome.memory_plan = memory_->plan();
  const bool fills_gpu = memory_->streams() && !memory_->saves();
  if (!inputs.keep_transformer || fills_gpu) release_transformer();
  outcome.latents = latents.video.to(at::kCPU).contiguous();
  if (latents.sound.defined()) outcome.latents.sound = latents.sound.to(at::kCPU).contiguous();
  outcome.seconds.denoise = meter.lap() - outcome.seconds.switch_transformer - outcome.seconds.keep;
  outcome.memory.denoise = std::max(loading, meter.take_peak());
  const bool is_first = run.group == nullptr || run.group->rank() == 0;
  if (is_first) run.tell().latents(outcome);
  outcome.seconds.keep += meter.lap();
  if (!inputs.decode || (!is_first && plan.vae_tiling == VaeTiling::on)) {
    release_others(run);
    return outcome;
  }
  run.tell().stage("decode");
  load_vae();
  outcome.seconds.load_vae = meter.lap();
  Decoded decoded = decode(plan.no_audio ? Latents(latents.video) : latents, plan.vae_tiling, run);
  outcome.frames = std::move(decoded.frames);
  outcome.facts = std::move(decoded.facts);
  outcome.sound = std::move(decoded.sound);
  outcome.vae_tiled = decoded.tiled;
  if (is_first && conditioning.latents.defined()) outcome.image = round_trip(conditioning, plan, decoded.tiled);
  if (!decoded.warning.empty()) {
    outcome.warnings.push_back(decoded.warning);
    run.tell().warning(decoded.warning);
  }
  outcome.seconds.decode_sound = decoded.sound_seconds;
  outcome.seconds.decode = meter.lap() - decoded.sound_seconds;
  outcome.memory.decode = meter.take_peak();
  return outcome;
}

/// Returns how many of the group's first ranks decode a band of rows; 1 if rank 0 decodes alone. Sets `tiled` if frames
/// must be decoded in tiles; ranks that together have enough memory need no tiles. All ranks call this.
int64_t Pipeline::decoding_ranks(const at::Tensor& latents, VaeTiling tiling, Group* group, bool& tiled) const {
  const int64_t rows = latents.size(3);
  const bool shared = group != nullptr && tiling != VaeTiling::on && vae_->decodes_in_pieces();
  const int64_t ranks = shared ? std::min(group->size(), rows) : 1;
  const uint64_t bytes = vae_->untiled_bytes(latents.size(2), piece_of_height(rows, ranks), latents.size(4));
  const int64_t sharing = device_.is_cpu() ? ranks : 1;  // number of ranks that share one memory
  tiled = use_tiling(tiling, bytes * static_cast<uint64_t>(sharing), ranks > 1);
  if (ranks > 1) tiled = any_rank(tiled, group, device_);
  return tiled ? 1 : ranks;
}

/// Throws Error if the sound is not as long as the video.
void Pipeline::check_sound(const Latents& latents) const {
  if (!latents.sound.defined()) return;
  const at::Tensor& video = latents.video;
  const int64_t frames = decoded_frames(spec_, video.size(frames_axis(spec_.layout)));
  const std::vector<int64_t> shape = sound_latents_shape(
      spec_, latent_size(spec_, frames, video.size(3) * spec_.stride[1], video.size(4) * spec_.stride[2]));
  if (latents.sound.sizes() == at::IntArrayRef(shape)) return;
  std::ostringstream cause;
  cause << "the file's sound latents " << latents.sound.sizes() << " do not fit its video of " << frames
        << " frames, which needs " << at::IntArrayRef(shape);
  throw bad_input(cause.str(), "decode a file that save_latents wrote, or give no_audio");
}

void Pipeline::check_latents(const Latents& latents) const {
  const int64_t channels = spec_.latent_channels, axis = channels_axis(spec_.layout);
  const at::Tensor& video = latents.video;
  if (latents.sound.defined() && !spec_.sound.any())
    throw bad_input("the latents are of a video with sound, which this model does not make",
                    "decode them with the checkpoint that made them");
  if (video.dim() == 5 && video.size(0) == 1 && video.size(axis) == channels) return check_sound(latents);
  std::ostringstream cause;
  cause << "latents of shape " << video.sizes() << " do not fit this model, which needs [1, "
        << (axis == 2 ? "frames, " : "") << channels << (axis == 1 ? ", frames" : "") << ", height, width]";
  throw bad_input(cause.str(), "decode them with the checkpoint that made them");
}

Sound Pipeline::decode_sound(const at::Tensor& latents, const Run& run) const {
  Sound sound;
  const auto work = [&] {
    const std::unique_ptr<SoundVae> vae = load_sound_vae(folder_.component(kSoundVae), device_);
    sound = {.samples = vae->decode(latents.to(device_)).to(at::kCPU), .sampling_rate = vae->sampling_rate()};
  };
  work_or_retry(
      "decoding the sound", "choose fewer frames, or no_audio",
      [&] { do_unless_cancelled(run.cancelled, [&] { read_whole(folder_, {kSoundVae}, device_, work); }); },
      [this] { return make_room(); });
  if (FrameSink* const sink = run.tell().frames()) sink->take_sound(sound);
  return sound;
}

Decoded Pipeline::decode(const Latents& latents, VaeTiling tiling, const Run& run) {
  const c10::InferenceMode guard;
  check_latents(latents);
  const bool is_first = run.group == nullptr || run.group->rank() == 0;
  const auto start = std::chrono::steady_clock::now();
  Sound sound;
  if (latents.sound.defined() && is_first) sound = decode_sound(latents.sound, run);
  const std::chrono::duration<double> sound_seconds = std::chrono::steady_clock::now() - start;
  load_vae();
  at::Tensor there = latents.video.to(device_, vae_dtype_);
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
  if (sound.samples.defined()) result.sound_seconds = sound_seconds.count();
  result.sound = std::move(sound);
  return result;
}

Decoder Pipeline::decoder() const {
  return {.vae = *vae_,
          .pixels = {spec_.stride[1], spec_.stride[2]},
          .device = device_,
          .has_tiles = spec_.takes_vae_tiling};
}

at::Tensor Pipeline::round_trip(const Conditioning& conditioning, const Plan& plan, bool tiled) {
  const at::Tensor latent = first_latent(conditioning, plan, spec_).to(device_, at::kFloat) * vae_->encoded_scale();
  try {
    return shown_frames(vae_->decode(latent.to(vae_dtype_), tiled)).to(at::kCPU);
  } catch (const c10::OutOfMemoryError&) {
    return {};  // leave the image out, because the video itself is finished
  }
}

}  // namespace sparsereel::models
