// Keeps the memory plan of a pipeline, and makes it smaller when memory runs out.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "models/engine/memory_decision.h"
#include "models/store/weights/layer_weights.h"

namespace sparsereel::models {

class MemoryPolicy {
 public:
  /// `max_vram` is in GiB. On a CPU nothing is streamed.
  MemoryPolicy(c10::Device device, Offload offload, std::optional<double> max_vram = {});

  /// Returns true with `offload on`: the run then uses little GPU memory even if more is free.
  bool saves() const { return offload_ == Offload::on; }
  bool is_automatic() const { return offload_ == Offload::automatic; }
  /// Returns nothing before settle() was called. On a CPU there is never a plan.
  const std::optional<MemoryPlan>& plan() const { return plan_; }
  /// Returns how many blocks of a transformer to stream.
  Streaming streaming() const;
  /// Returns true if some blocks of the transformer are streamed: they are copied to the GPU when they are needed.
  bool streams() const { return streaming().layers > 0; }
  /// Returns true if the text encoder's layers pass through the GPU one by one, however much memory is free.
  bool streams_text() const { return saves() || (plan_ && plan_->streams_text); }
  /// Returns true if the decoder leaves the GPU before the transformer computes.
  bool frees_vae() const { return plan_ && plan_->frees_vae; }
  /// Returns true if the text encoder can stay loaded while a video is made, without a change of the plan. Returns
  /// false before settle() was called.
  bool has_room_for_text() const { return plan_ && is_automatic() && is_same_with_less(facts_, *plan_, facts_.text); }
  /// Returns the bytes of the device that can be allocated now, within max_vram.
  uint64_t room() const;

  /// First sets facts.gpu to the bytes that are free now plus `held`, the bytes that this run will give back. Then
  /// returns the plan for these facts. If several ranks make a video together, all blocks stay on their GPUs unless
  /// offload is `on`.
  MemoryPlan plan_for(MemoryFacts& facts, uint64_t held, int64_t ranks) const;
  /// Chooses the plan for a video. If transformers are `loaded`, keeps the present plan as long as it is small enough.
  /// Returns false if the transformers must be freed, because the new plan keeps less in memory.
  bool settle(MemoryFacts facts, uint64_t held, bool loaded, int64_t ranks);
  /// Replaces the plan by one that needs less GPU memory, because memory ran out. Returns false if there is none.
  bool shrink();

 private:
  c10::Device device_;
  Offload offload_;
  std::optional<double> most_;  // max_vram in bytes
  MemoryFacts facts_;
  std::optional<MemoryPlan> plan_;
  double step_factor_ = 1;  // a step's estimated bytes are multiplied by this; above 1 after memory ran out
};

}  // namespace sparsereel::models
