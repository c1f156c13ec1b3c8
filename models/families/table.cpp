// The program's families, alone in an object file: a program that defines families() itself, with rows of its own,
// links without this one.
#include "models/checkpoint/family.h"

namespace sparsereel::models {

const std::vector<Family>& families() {
  static const std::vector<Family> table = published_families();
  return table;
}

}  // namespace sparsereel::models
