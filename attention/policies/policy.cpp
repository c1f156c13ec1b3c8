// Turns a run's policy into the policy of one call, and checks it.
#include "attention/policies/policy.h"

#include <string>

#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

void require_count(const char* field, int64_t value) {
  if (value < 0) throw bad_option(field, "is " + std::to_string(value), "set it to 0 or more");
}

}  // namespace

CallPolicy Policy::at(int64_t layer, int64_t step) const {
  CallPolicy call{*this};
  call.dense = layer < dense_layers || step < dense_steps;
  if (per_head.empty()) return call;
  if (layer < 0 || layer >= static_cast<int64_t>(per_head.size()))
    throw bad_input("attention policy: per_head has " + std::to_string(per_head.size()) + " layers, layer " +
                        std::to_string(layer) + " was asked for",
                    "use the profile of this model");
  call.heads = per_head[static_cast<size_t>(layer)];
  return call;
}

void validate(const Policy& policy) {
  if (policy.per_head.empty()) validate(policy.at(0, 0));
  for (size_t layer = 0; layer < policy.per_head.size(); ++layer)
    validate(policy.at(static_cast<int64_t>(layer), 0), "per_head[" + std::to_string(layer) + "]");
  require_count("dense_steps", policy.dense_steps);
  require_count("dense_layers", policy.dense_layers);
}

}  // namespace sparsereel::attention
