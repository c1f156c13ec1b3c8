// Collects a module's tensors.
#include "models/store/weights/layer_weights.h"

#include <algorithm>

namespace sparsereel::models {
Slots slots_of(const std::function<void(const Visit&)>& list) {
  Slots slots;
  list([&](at::Tensor& tensor, const Parameter& parameter) { slots.push_back({&tensor, parameter}); });
  return slots;
}

std::vector<at::Tensor*> tensors_of(const Slots& slots) {
  std::vector<at::Tensor*> tensors;
  for (const auto& [tensor, parameter] : slots) {
    tensors.push_back(tensor);
    if (parameter.scale != nullptr && parameter.scale->defined()) tensors.push_back(parameter.scale);
    if (parameter.rows == nullptr) continue;
    for (StoredRows& rows : *parameter.rows)
      for (LowRank& delta : rows.deltas) tensors.insert(tensors.end(), {&delta.up, &delta.down});
  }
  return tensors;
}

uint64_t bytes_of(const Slots& slots, const WeightReader& reader) {
  uint64_t bytes = 0;
  for (const Slot& slot : slots) bytes += reader.bytes(slot.parameter);
  return bytes;
}

bool rounds_again(const Slots& slots, const WeightReader& reader) {
  return std::ranges::any_of(slots, [&](const Slot& slot) { return reader.rounds_again(slot.parameter); });
}

}  // namespace sparsereel::models
