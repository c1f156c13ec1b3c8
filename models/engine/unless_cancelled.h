// Runs long work that ends soon after its run is cancelled.
#pragma once

#include <functional>

#include "models/request/run.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {

/// Calls work(), which polls `cancelled` as StoppableWork does. Throws Cancelled once `cancelled` returns true. The
/// work then stays unfinished, so no other thread or rank may wait for it.
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
