// Runs long work, and ends it soon after the run is cancelled.
#pragma once

#include <functional>

#include "models/request/run.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {

/// Calls work(). Long loops in it poll `cancelled` through StoppableWork. Once `cancelled` returns true, throws
/// Cancelled and leaves the work unfinished, so no other thread or rank may wait for it.
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
