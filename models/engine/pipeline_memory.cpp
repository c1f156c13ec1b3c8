// Divides memory among the stages of a pipeline.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "models/engine/components.h"
#include "models/engine/experts.h"
#include "models/engine/memory_facts.h"
#include "models/engine/memory_need.h"
#include "models/engine/memory_policy.h"
#include "models/engine/pipeline.h"
#include "models/engine/text_stage.h"
#include "models/engine/video_bytes.h"
#include "models/parallel/group.h"
#include "models/store/weights/device.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

Loading Pipeline::loading() const {
  return {.device = device_,
          .format = transformer_format(),
          .offload = memory_->saves() || (memory_->is_automatic() && !device_.is_cpu())};
}

/// With automatic offload, the need is 0: weights always find a place, in the worst case in their file, from which each
/// step reads them.
const WeightNeed& Pipeline::transformer_need() const {
  if (weight_need_) return *weight_need_;
  WeightNeed need = weight_need(folder_, spec_, loading());
  if (memory_->is_automatic()) need.host = need.device = 0;
  weight_need_ = std::make_shared<const WeightNeed>(need);
  return *weight_need_;
}

/// Reads the facts about the model once, because that describes all its parts.
const ModelFacts& Pipeline::known_model() const {
  if (model_facts_) return *model_facts_;
  RunFormat format = {.transformer = loading(), .text = text_format(), .vae = vae_dtype_, .encoder = encoder_dtype_};
  if (device_.is_cpu()) format = format_on_a_gpu(spec_, gpu_dtype_, transformer_format(), text_format());
  model_facts_ = std::make_shared<const ModelFacts>(model_facts(folder_, spec_, format));
  return *model_facts_;
}

MemoryFacts Pipeline::memory_facts(const Plan& plan, int64_t ranks) const {
  MemoryFacts facts = video_facts(known_model(), spec_, plan, ranks);
  add_host(facts, ranks);
  if (!device_.is_cpu()) add_rates(facts, plan, spec_, transformer_need().parameters, device_, dtype_, ranks);
  return facts;
}

std::optional<MemoryPlan> Pipeline::foreseen_memory(const Plan& plan, int64_t ranks) const {
  if (device_.is_cpu() && !max_vram_) return {};
  MemoryFacts facts = memory_facts(plan, ranks);
  if (!device_.is_cpu()) return memory_->plan_for(facts, held_bytes(), ranks);
  facts.gpu = *max_vram_ * kBytesOfGibibyte;
  return decide(facts);
}

std::vector<StageEstimate> Pipeline::likely_stages(const Plan& plan, int64_t ranks) const {
  RunFormat format = {.transformer = loading(), .text = text_format(), .vae = vae_dtype_, .encoder = encoder_dtype_};
  if (!device_.is_cpu()) format.transformer.plan = foreseen_memory(plan, ranks);
  return models::likely_stages(folder_, spec_, plan, format, ranks);
}

/// Returns the bytes of GPU memory that text encoder, transformers and decoder take and can give back.
uint64_t Pipeline::held_bytes() const {
  uint64_t bytes = text_->held_bytes() + (vae_ ? vae_->weights().bytes : 0);
  const uint64_t each = memory_->plan() ? memory_->plan()->weight_bytes
                                        : weight_bytes(folder_, spec_.experts.front().role, transformer_format());
  bytes += experts_->loaded_count() * each;
  return bytes;
}

void Pipeline::release_text_if_tight() {
  if (!memory_->has_room_for_text()) text_->release();
}

void Pipeline::settle_memory(const Plan& plan, const Run& run) {
  if (device_.is_cpu()) return;
  const int64_t ranks = run.group == nullptr ? 1 : run.group->size();
  if (!memory_->settle(memory_facts(plan, ranks), held_bytes(), has_transformer(), ranks)) release_transformer();
  if (memory_->frees_vae()) vae_.reset();
  if (!memory_->plan()) return;
  std::string told = sentence(*memory_->plan());
  if (told != std::exchange(told_memory_, told)) run.tell().memory(*memory_->plan());
}

/// Does the work of a step. If GPU memory runs out, switches to a memory plan that needs less and repeats the work,
/// which is possible because a failed step changes nothing. With several ranks the error is thrown instead, because the
/// other ranks would wait for this one.
void Pipeline::with_less_memory(const Run& run, int64_t step, Outcome& outcome, const std::function<void()>& work) {
  for (;;) {
    std::exception_ptr failure;
    try {
      return work();
    } catch (const c10::OutOfMemoryError&) {
      failure = std::current_exception();
    }
    // Unwinding has freed the tensors of the failed step by now.
    const bool frees_text = text_->is_loaded();
    if (frees_text) text_->release();
    if (frees_text && run.group == nullptr) continue;
    if (run.group != nullptr || !memory_->shrink()) std::rethrow_exception(failure);
    failure = nullptr;
    release_transformer();
    vae_.reset();
    outcome.warnings.push_back("step " + std::to_string(step + 1) + " ran out of GPU memory and was done again with " +
                               std::to_string(memory_->plan()->resident) + " blocks of the transformer on the GPU");
    run.tell().warning(outcome.warnings.back());
    told_memory_ = sentence(*memory_->plan());
    run.tell().memory(*memory_->plan());
  }
}

/// Returns true if another transformer fits beside the loaded ones. Without a plan, or with `offload off`, a quarter of
/// the free memory must stay free for the tensors of the steps.
bool Pipeline::fits_beside(const std::string& role) const {
  if (memory_->plan() && (memory_->is_automatic() || memory_->saves())) return memory_->plan()->experts > 1;
  return weight_bytes(folder_, role, transformer_format()) <=
         free_memory(memory_->saves() ? at::Device(at::kCPU) : device_) / 4 * 3;
}

/// Frees the transformers and the text encoder; returns false if none of them was loaded.
bool Pipeline::make_room() const {
  const bool had_any = has_transformer() || text_->is_loaded();
  text_->release();
  experts_->release();
  return had_any;
}

void Pipeline::load_vae() {
  if (vae_) return;
  vae_component_ = folder_.component("vae");
  const auto load = [this] { vae_ = models::load_vae(vae_component_, device_, vae_dtype_); };
  try {
    return load();
  } catch (const c10::OutOfMemoryError&) {
    if (!has_transformer() && !text_->is_loaded()) throw;
  }
  make_room();
  load();
}

/// Returns true if frames must be decoded in tiles. `untiled_bytes` is the memory needed without tiles. `shared` is
/// true if several ranks each decode a band of rows.
bool Pipeline::use_tiling(VaeTiling tiling, uint64_t untiled_bytes, bool shared) const {
  if (!spec_.takes_vae_tiling) return false;
  if (tiling != VaeTiling::automatic) return tiling == VaeTiling::on;
  // With `offload on`, little memory should be in use, even if more is free.
  if (memory_->saves() && !shared) return true;
  // A quarter of the free memory must stay free, because the estimate does not include everything.
  const auto is_tight = [&] { return untiled_bytes > memory_->room() / 4 * 3; };
  // A text encoder that was kept for the next video must not change how this one is decoded.
  if (is_tight() && text_->is_loaded()) text_->release();
  return is_tight();
}

}  // namespace sparsereel::models
