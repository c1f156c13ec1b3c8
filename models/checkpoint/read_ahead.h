// Reads a component's files into the system's cache before they are needed.
#pragma once

#include <thread>

#include "models/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// In a thread of its own, which ends with the object: what it has read by then is read.
class ReadAhead {
 public:
  explicit ReadAhead(Component component);

 private:
  std::jthread thread_;
};

}  // namespace sparsereel::models
