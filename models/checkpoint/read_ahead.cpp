// Hints, tensor by tensor: the process holds none of the pages.
#include "models/checkpoint/read_ahead.h"

#include <utility>

namespace sparsereel::models {

ReadAhead::ReadAhead(Component component)
    : thread_(
          [files = std::move(component.files), tensors = std::move(component.tensors)](const std::stop_token& stop) {
            for (const auto& [name, place] : tensors) {
              if (stop.stop_requested()) return;
              files[place.first]->prefetch(*place.second);
            }
          }) {}

}  // namespace sparsereel::models
