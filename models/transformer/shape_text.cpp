// Formats shapes.
#include "models/transformer/shape_text.h"

#include <sstream>

namespace sparsereel::models {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace sparsereel::models
