// Tells clients of /events about videos and the queue. Safe for threads.
#pragma once

#include <string>

#include "app/serve/events.h"
#include "app/serve/store.h"

namespace sparsereel::app::serve {

class Publisher {
 public:
  Publisher(const VideoStore& store, EventHub& events) : store_(store), events_(events) {}

  /// Publishes a video's new state.
  void video(const std::string& id);
  /// Publishes that a video was removed.
  void deleted(const std::string& id);
  /// Publishes which videos wait.
  void queue();
  void preview(const std::string& id, int64_t step);

 private:
  const VideoStore& store_;
  EventHub& events_;
};

}  // namespace sparsereel::app::serve
