// The attention policy of a run: which policy a head has in each layer and step. No torch.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call_policy.h"

namespace sparsereel::attention {

struct Policy : BlockPolicy {
  std::vector<std::vector<HeadPolicy>> per_head;  // [layer][head], from a profile; empty if all heads use the defaults
  int64_t dense_steps = 0;                        // how many of the first steps compute every block
  int64_t dense_layers = 0;                       // how many of the first layers compute every block

  /// Returns the policy for calls of this layer in this step. The result points into per_head. Throws Error if per_head
  /// does not have this layer.
  CallPolicy at(int64_t layer, int64_t step) const;
};

/// Throws Error, naming the field ("per_head[1][2].topk"), if a value is out of range or contradicts another.
void validate(const Policy& policy);

}  // namespace sparsereel::attention
