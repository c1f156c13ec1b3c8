// The list by itself, so that a program may bring another.
#include "models/video/fields.h"

namespace sparsereel::models {

const std::vector<Field>& fields() {
  static const std::vector<Field> all = usual_fields();
  return all;
}

}  // namespace sparsereel::models
