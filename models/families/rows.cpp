// The table of families, alone in its object file: a program that defines families() itself, with rows of its own,
// links without this one.
#include "models/families/cogvideox.h"
#include "models/families/wan.h"

namespace sparsereel::models {

const std::vector<Family>& families() {
  static const std::vector<Family> rows = {cogvideox_family(), wan_family()};
  return rows;
}

}  // namespace sparsereel::models
