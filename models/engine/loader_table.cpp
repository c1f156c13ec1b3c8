// The program's loaders, alone in an object file as families/table.cpp is.
#include "models/engine/components.h"

namespace sparsereel::models {

const ComponentLoaders& component_loaders() {
  static const ComponentLoaders table = published_loaders();
  return table;
}

}  // namespace sparsereel::models
