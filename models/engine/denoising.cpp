// Makes the denoising steps: predicts, redoes predictions that hold NaN, and steps the sampler.
#include "models/engine/denoising.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/frames.h"
#include "models/engine/rank_counts.h"
#include "models/samplers/make_sampler.h"
#include "models/transformer/context_keys.h"

namespace sparsereel::models {
namespace {

void add_layers(std::vector<attention::Statistics>& sum, const std::vector<attention::Statistics>& layers) {
  sum.resize(std::max(sum.size(), layers.size()));
  for (size_t layer = 0; layer < layers.size(); ++layer) sum[layer] += layers[layer];
}

using Tensors = std::map<std::string, at::Tensor>;

void place_on(at::Device device, Tensors& tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(device).contiguous();
}

/// Returns a flag on the device: true if the predictions of video and sound are finite.
at::Tensor are_finite(const Prediction& prediction) {
  const auto finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).all(); };
  return prediction.sound.defined() ? finite(prediction.video).logical_and(finite(prediction.sound))
                                    : finite(prediction.video);
}

/// Interprets the tensor's bits as integers and returns their sum, int64.
at::Tensor checksum(const at::Tensor& tensor) {
  return tensor.contiguous().view(tensor.element_size() == 2 ? at::kShort : at::kInt).sum(at::kLong);
}

constexpr const char* kOfSound = "sound.";  // prefix of the tensors of the sound's sampler

/// Returns the timesteps of all steps, for transformers that prepare for them.
StepTimes step_times(const Sampler& video, const Sampler* sound, bool has_keyframes) {
  return {.video = video.timesteps(),
          .sound = sound == nullptr ? std::vector<double>() : sound->timesteps(),
          .has_keyframes = has_keyframes};
}

/// Takes the keyframes out of the conditioning.
std::vector<Keyframe> take_keyframes(Conditioning& conditioning) {
  std::vector<Keyframe> keyframes;
  if (at::Tensor first = std::exchange(conditioning.first_keyframe, {}); first.defined())
    keyframes.push_back({.latents = std::move(first), .last = false});
  if (at::Tensor last = std::exchange(conditioning.last_keyframe, {}); last.defined())
    keyframes.push_back({.latents = std::move(last), .last = true});
  return keyframes;
}

}  // namespace

Denoising::Denoising(std::shared_ptr<Experts> experts, const SchedulerConfig& scheduler, const Plan& plan,
                     DenoisingStart start)
    : experts_(std::move(experts)),
      plan_(plan),
      state_(std::move(start)),
      share_(share_of(state_.group, state_.conditioning.passes())) {
  for (size_t expert = 0; expert < experts_->size(); ++expert) {
    const double scale = expert == 0 ? plan.guidance_scale : plan.guidance_scale_2.value();
    guidance_.emplace_back(scale, plan.use_dynamic_cfg, plan.num_inference_steps, plan.guidance_passes);
  }
  Conditioning& conditioning = state_.conditioning;
  if (conditioning.latents.defined()) conditioning.latents = conditioning.latents.to(state_.latents.options());
  if (!conditioning.mask.defined()) beside_ = std::exchange(conditioning.latents, {});
  keyframes_ = take_keyframes(conditioning);
  sampler_ = make_sampler(scheduler, plan.num_inference_steps);
  if (state_.sound.defined()) {
    sound_sampler_ = make_sampler(state_.sound_scheduler, plan.num_inference_steps);
    state_.sound = sound_sampler_->start(state_.sound);
  }
  state_.latents = with_known(sampler_->start(state_.latents));
  attention_.mode = plan.attention_mode;
  attention_.policy = plan.attention_policy;
  // Benchmarks compare plans that differ only in the mode, so a plan with quantized attention may ask for 16 bits.
  // Quantized attention always computes in 8 bits.
  if (attention_.mode == attention::Mode::quantized) attention_.policy.arithmetic = attention::BlockPolicy{}.arithmetic;
  attention_.token_order = plan.token_order;
  attention_.collects = false;
  attention_.tokens = share_.tokens.get();
  forget_steps();
  forget_context();
}

at::Tensor Denoising::with_known(at::Tensor latents) const {
  const Conditioning& conditioning = state_.conditioning;
  return conditioning.mask.defined() ? at::where(conditioning.mask.ne(0), latents, conditioning.latents) : latents;
}

at::Tensor Denoising::with_beside(const at::Tensor& latents) {
  if (!beside_.defined()) return latents;
  const int64_t axis = channels_axis(state_.layout), channels = latents.size(axis);
  if (!input_.defined() || input_.size(0) != latents.size(0)) {
    std::vector<int64_t> shape = latents.sizes().vec();
    shape[static_cast<size_t>(axis)] += beside_.size(axis);
    input_ = at::empty(shape, latents.options());
    input_.narrow(axis, channels, beside_.size(axis)).copy_(beside_);
  }
  input_.narrow(axis, 0, channels).copy_(latents);
  return input_;
}

TransformerInput Denoising::input_of(const at::Tensor& latents, const Conditioning& conditioning, double timestep) {
  const int64_t passes = conditioning.passes();
  const auto times = [&](double time) { return at::full({passes}, time, latents.options().dtype(at::kFloat)); };
  TransformerInput input = {
      .latents = with_beside(latents), .conditioning = conditioning, .timesteps = times(timestep)};
  for (const Keyframe& keyframe : keyframes_)
    input.keyframes.push_back({.latents = keyframe.latents.expand({passes, -1, -1, -1, -1}), .last = keyframe.last});
  if (!sound_sampler_) return input;
  input.sound = sound_sampler_->model_input(state_.sound, done_).expand({passes, -1, -1});
  input.sound_timesteps = times(sound_sampler_->timesteps().at(static_cast<size_t>(done_)));
  return input;
}

Prediction Denoising::predict(double timestep, AttentionRun& run) {
  const size_t expert = experts_->at(timestep);
  LoadedTransformer& transformer = experts_->load(expert);
  StepCache* cache = cache_ ? &*cache_ : nullptr;
  if (cache != nullptr) cache->begin_step(plan_.cache.reuses(done_, steps()));
  transformer.prepare(step_times(*sampler_, sound_sampler_.get(), !keyframes_.empty()));
  return guidance_[expert].predict(
      sampler_->model_input(state_.latents, done_), state_.conditioning, timestep,
      [&](const at::Tensor& latents, const Conditioning& conditioning) {
        return transformer.predict(input_of(latents, conditioning, timestep), run, cache);
      },
      share_.passes.get());
}

/// Returns true if the predictions of all ranks are finite. The same exchange also compares the ranks' latents, and
/// Error is thrown if they differ: all latents are equal if the largest checksum equals the smallest one.
bool Denoising::finite_everywhere(const Prediction& prediction) const {
  if (share_.all == nullptr) return are_finite(prediction).item<bool>();
  at::Tensor sum = checksum(state_.latents);
  if (state_.sound.defined()) sum = sum + checksum(state_.sound);
  const at::Tensor broken = are_finite(prediction).logical_not();
  const at::Tensor most = at::stack({broken.to(at::kLong), sum, sum.neg()});
  share_.all->all_reduce_max(most);
  const at::Tensor found = most.cpu();
  share_.all->check();
  if (found[1].item<int64_t>() != -found[2].item<int64_t>())
    throw run_failure("the ranks' latents differ before step " + std::to_string(done_ + 1),
                      "use GPUs of one kind; if they are, find the one that computes wrongly");
  return found[0].item<int64_t>() == 0;
}

/// Draws noise for later steps while the GPU computes. The prediction's kernels have only been started, so the host is
/// free. Draws nothing in a step that reuses cached results, because such a step ends too soon.
void Denoising::draw_while_busy() {
  const at::Device device = state_.latents.device();
  if (device.is_cpu() || (cache_ && cache_->reuses())) return;
  c10::Event predicted(device.type());
  predicted.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  while (!predicted.query() && sampler_->draw_ahead(done_, state_.latents, state_.generator)) continue;
}

/// Predicts, and repeats the prediction with full attention if it holds NaN or Inf. Afterwards, attention_.per_layer
/// holds only this step's counts.
Prediction Denoising::predict_guarded(double timestep) {
  Prediction prediction = predict(timestep, attention_);
  draw_while_busy();
  const bool finite = finite_everywhere(prediction);
  experts_->load(experts_->at(timestep)).collect(attention_);
  if (finite) return prediction;
  if (attention_.mode != attention::Mode::full || is_reused_step(attention_.per_layer)) {
    prediction = redo_with_full_attention(timestep);
    if (finite_everywhere(prediction)) return prediction;
  }
  throw run_failure("step " + std::to_string(done_ + 1) + ": the transformer's prediction holds NaN or Inf",
                    nan_remedy(state_.latents.scalar_type()));
}

/// Repeats the step's prediction with full attention. Replaces the step's counts by those of full attention, because
/// only the second prediction is used. Empties the step cache, because the first try may have left NaN in it.
Prediction Denoising::redo_with_full_attention(double timestep) {
  const bool reused = is_reused_step(attention_.per_layer);
  forget_steps();
  AttentionRun full;
  full.token_order = attention_.token_order;
  full.step = done_;
  full.tokens = attention_.tokens;
  full.attended = attention_.attended;
  Prediction prediction = predict(timestep, full);
  attention_.per_layer = std::move(full.per_layer);
  attention_.redone_steps.push_back(done_);
  warnings_.push_back("step " + std::to_string(done_ + 1) + " gave NaN or Inf with " +
                      std::string(name(attention_.mode)) + " attention" + (reused ? " and a cache" : "") +
                      " and was redone with full attention");
  return prediction;
}

void Denoising::forget_steps() {
  if (plan_.cache.on()) cache_.emplace(plan_.cache, share_, plan_.guidance_passes);
}

void Denoising::forget_context() {
  Conditioning& conditioning = state_.conditioning;
  if (conditioning.context.defined()) conditioning.keys = std::make_shared<ContextKeys>();
}

/// Discards the counts that a failed step has left in the transformer, because the next run must not include them.
void Denoising::discard_counts() noexcept {
  try {
    AttentionRun nobodys;
    if (LoadedTransformer* transformer = experts_->loaded(experts_->at(timestep()))) transformer->collect(nobodys);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the step's own error is thrown; a lost device has no counts
  }
}

void Denoising::add_up_layers() {
  attention_.statistics = {};
  for (const attention::Statistics& layer : attention_.per_layer) attention_.statistics += layer;
}

/// Makes one step. Changes the latents and the number of done steps at the very end, where nothing can throw any more.
/// If it throws before, step() restores everything else.
void Denoising::take_step() {
  attention_.step = done_;
  attention_.mode = done_ < plan_.exact_steps ? attention::Mode::full : plan_.attention_mode;
  const std::vector<attention::Statistics> before = std::exchange(attention_.per_layer, {});
  const Prediction prediction = predict_guarded(timestep());
  attention_.mode = plan_.attention_mode;  // restores the run's mode, which reports name
  at::Tensor next = sampler_->step(prediction.video, done_, state_.latents, state_.generator), sound;
  next = with_known(next.to(state_.latents.scalar_type()));
  if (sound_sampler_) sound = sound_sampler_->step(prediction.sound, done_, state_.sound, state_.generator);
  if (share_.all != nullptr)
    add_up_ranks(attention_.per_layer, attention_.kept_by_rank, *share_.all, state_.latents.device());
  if (done_ + 1 == steps() && share_.tokens) share_.tokens->close_windows();
  attention_.per_step.push_back(attention_.per_layer);
  add_layers(attention_.per_layer, before);
  add_up_layers();
  last_ = {.prediction = prediction.video, .sample = std::exchange(state_.latents, std::move(next))};
  state_.sound = std::move(sound);
  ++done_;
  if (!finished()) return;
  forget_steps();  // the cached residuals take gigabytes
  forget_context();
}

bool Denoising::load_expert() {
  if (finished()) return false;
  leave_expert();
  const size_t expert = experts_->at(timestep());
  if (experts_->loaded(expert) != nullptr) return false;
  experts_->load(expert);
  return true;
}

void Denoising::leave_expert() {
  if (done_ > 0 && experts_->at(timestep()) != experts_->at(timestep(done_ - 1))) {
    forget_steps();
    forget_context();
  }
}

void Denoising::step() {
  last_ = {};
  leave_expert();
  // A step may fail anywhere, for example for lack of memory, after its sampler has drawn noise or changed its history.
  // The copies make it possible to undo the step. Until the step is done, they also keep in memory the tensors that the
  // cache replaces.
  AttentionRun attention = attention_;
  std::vector<std::string> warnings = warnings_;
  std::optional<StepCache> cache = cache_;
  at::Generator generator = state_.generator.clone();
  const Tensors sampled = history();
  try {
    take_step();
  } catch (...) {
    discard_counts();
    attention_ = std::move(attention);
    warnings_ = std::move(warnings);
    cache_ = std::move(cache);
    state_.generator = std::move(generator);
    restore_history(sampled);
    throw;
  }
}

/// Returns the states of the video's and the sound's sampler.
Tensors Denoising::history() const {
  Tensors all = sampler_->state();
  if (sound_sampler_)
    for (auto& [name, tensor] : sound_sampler_->state()) all[kOfSound + name] = tensor;
  return all;
}

void Denoising::restore_history(const Tensors& history) {
  Tensors video, sound;
  for (const auto& [name, tensor] : history)
    (name.starts_with(kOfSound) ? sound[name.substr(std::string_view(kOfSound).size())] : video[name]) = tensor;
  sampler_->restore(video);
  if (sound_sampler_) sound_sampler_->restore(sound);
}

DenoisingState Denoising::state() const {
  DenoisingState state{.step = done_,
                       .latents = state_.latents.to(at::kCPU).contiguous(),
                       .sound = state_.sound.defined() ? state_.sound.to(at::kCPU).contiguous() : at::Tensor(),
                       .scheduler = history(),
                       .cache = cache_ ? cache_->state() : Tensors{},
                       .generator = state_.generator.get_state(),
                       .per_step = attention_.per_step,
                       .redone_steps = attention_.redone_steps,
                       .kernel = attention_.kernel,
                       .warnings = warnings_};
  place_on(at::kCPU, state.scheduler);
  place_on(at::kCPU, state.cache);
  return state;
}

void Denoising::resume(const DenoisingState& state) {
  const auto fits = [](const at::Tensor& kept, const at::Tensor& own) {
    if (!kept.defined() || !own.defined()) return kept.defined() == own.defined();
    return kept.sizes() == own.sizes() && kept.scalar_type() == own.scalar_type();
  };
  if (state.step < 0 || state.step > steps() || !fits(state.latents, state_.latents) ||
      !fits(state.sound, state_.sound))
    throw bad_input("the denoising checkpoint does not fit this run",
                    "remove it: the run then begins at its first step");
  const at::Device device = state_.latents.device();
  Tensors remembered = state.cache;
  place_on(device, remembered);
  if (cache_) cache_->restore(remembered);  // throws before anything else has changed
  state_.latents = state.latents.to(device);
  if (state.sound.defined()) state_.sound = state.sound.to(device);
  Tensors sampled = state.scheduler;
  place_on(device, sampled);
  restore_history(sampled);
  state_.generator.set_state(state.generator);
  attention_.per_step = state.per_step;
  attention_.redone_steps = state.redone_steps;
  attention_.per_layer.clear();
  for (const std::vector<attention::Statistics>& layers : state.per_step) add_layers(attention_.per_layer, layers);
  add_up_layers();
  attention_.kernel = state.kernel;
  warnings_ = state.warnings;
  done_ = state.step;
}

at::Tensor Denoising::of_the_video(const at::Tensor& latents) const {
  const int64_t axis = frames_axis(state_.layout), frames = plan_.latent.frames;
  return latents.narrow(axis, latents.size(axis) - frames, frames);
}

at::Tensor Denoising::latents() const {
  return of_the_video(state_.latents);
}

at::Tensor Denoising::predicted_latents() const {
  const at::Tensor original = sampler_->predicted_original(last_.prediction, done_ - 1, last_.sample);
  return of_the_video(with_known(original.to(state_.latents.scalar_type())));
}

}  // namespace sparsereel::models
