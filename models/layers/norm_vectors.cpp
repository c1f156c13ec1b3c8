// Lists the vectors of a norm.
#include "models/layers/norm_vectors.h"

namespace sparsereel::models {

void Norm::weights(const Visit& visit, const std::string& name, int64_t channels, bool fp32) {
  visit(weight, parameter(name + ".weight", {channels}, fp32));
  if (!rms) visit(bias, parameter(name + ".bias", {channels}, fp32));
}

}  // namespace sparsereel::models
