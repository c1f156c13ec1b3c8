// Decides if a new memory plan replaces the present one.
#include "models/engine/memory_policy.h"

#include <algorithm>
#include <utility>

#include "models/store/weights/device.h"

namespace sparsereel::models {

MemoryPolicy::MemoryPolicy(c10::Device device, Offload offload, std::optional<double> max_vram)
    : device_(device), offload_(device.is_cpu() ? Offload::off : offload) {
  if (max_vram && !device.is_cpu()) most_ = *max_vram * kBytesOfGibibyte;
}

Streaming MemoryPolicy::streaming() const {
  if (!plan_) return saves() ? Streaming::all() : Streaming{};
  return {.layers = plan_->streamed(), .pageable = plan_->pageable, .from_file = plan_->from_file};
}

uint64_t MemoryPolicy::room() const {
  const uint64_t free = free_memory(device_);
  if (!most_) return free;
  const auto used = static_cast<double>(obtainable_memory(device_) - std::min(obtainable_memory(device_), free));
  return std::min(free, static_cast<uint64_t>(std::max(*most_ - used, 0.0)));
}

MemoryPlan MemoryPolicy::plan_for(MemoryFacts& facts, uint64_t held, int64_t ranks) const {
  facts.gpu = static_cast<double>(room() + held);
  facts.step *= step_factor_;
  if (ranks > 1 && is_automatic()) return decide_with_all_blocks(facts);
  return saves() ? decide_without_blocks(facts) : is_automatic() ? decide(facts) : decide_with_all_blocks(facts);
}

bool MemoryPolicy::settle(MemoryFacts facts, uint64_t held, bool loaded, int64_t ranks) {
  if (device_.is_cpu()) return true;
  // The present blocks take host memory, which a new plan can use again.
  if (loaded) facts.host_free = std::max(facts.host_free, facts_.host_free);
  MemoryPlan plan = plan_for(facts, held, ranks);
  // The present plan stays if its blocks still fit, even if more would fit: loading again takes longer than copying
  // more blocks. If blocks are streamed, one resident block too many is accepted, because the free memory changes a
  // little from video to video.
  const bool is_enough = plan_ && loaded && plan_->resident <= plan.resident + (plan_->streams() ? 1 : 0) &&
                         plan_->experts <= plan.experts;
  // If weights were loaded before any video was known, all blocks are on the GPU, or none with `offload on`.
  const bool is_as_loaded = !plan_ && loaded && (saves() || !plan.streams());
  facts_ = facts;
  if (is_enough) {
    plan_->streams_text = plan.streams_text;
    plan_->tiles = plan.tiles;
    plan_->frees_vae = plan.frees_vae;
    return true;
  }
  plan_ = std::move(plan);
  return !loaded || is_as_loaded;
}

bool MemoryPolicy::shrink() {
  if (!plan_ || !is_automatic()) return false;
  std::optional<MemoryPlan> plan = smaller(facts_, *plan_);
  if (!plan) return false;
  // The step needed more memory than estimated, by about the bytes of the weights that now leave the GPU. Expect the
  // next videos to exceed their estimates by the same factor.
  if (facts_.step > 0 && plan_->weight_bytes > plan->weight_bytes)
    step_factor_ *= 1 + static_cast<double>(plan_->weight_bytes - plan->weight_bytes) / facts_.step;
  plan_ = std::move(plan);
  return true;
}

}  // namespace sparsereel::models
