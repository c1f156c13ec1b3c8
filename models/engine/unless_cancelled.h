// Long work that ends soon after a run is cancelled.
#pragma once

#include <functional>

#include "models/request/run.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {

/// work(), which asks `cancelled` as StoppableWork does. Throws Cancelled once that is true. Other threads, and other
/// ranks, must not wait for what the work leaves undone.
template <typename Work>
void do_unless_cancelled(const std::function<bool()>& cancelled, const Work& work) {
  const StoppableWork stoppable(cancelled);
  try {
    work();
  } catch (const WorkStopped&) {
    throw Cancelled{};
  }
}

}  // namespace sparsereel::models
