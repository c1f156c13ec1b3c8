// Forwards the events of a run to several observers.
#include "models/request/run.h"

#include <algorithm>

namespace sparsereel::models {

bool Observers::wants_attention_calls() const {
  return std::ranges::any_of(all_, [](const RunObserver* each) { return each->wants_attention_calls(); });
}

void Observers::tell_all(const std::function<void(RunObserver&)>& event) {
  for (RunObserver* each : all_) event(*each);
}

FrameSink* Observers::frames() {
  for (RunObserver* each : all_)
    if (FrameSink* sink = each->frames()) return sink;
  return nullptr;
}

RunObserver& Run::tell() const {
  static RunObserver nobody;
  return observer != nullptr ? *observer : nobody;
}

}  // namespace sparsereel::models
