// How sparsely a run's attention computes, by layer, head and step. No torch.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/call_policy.h"

namespace sparsereel::attention {

struct Policy : BlockPolicy {
  std::vector<std::vector<HeadPolicy>> per_head;  // [layer][head], from a profile; empty: defaults everywhere
  int64_t dense_steps = 0;                        // the first steps that run with every block
  int64_t dense_layers = 0;                       // the first layers that run with every block

  /// The policy of this layer's calls in this step; points into per_head. Throws Error for a layer that is not there.
  CallPolicy at(int64_t layer, int64_t step) const;
};

/// Throws Error naming the field ("per_head[1][2].topk") when a value is outside its range, or contradicts another.
void validate(const Policy& policy);

}  // namespace sparsereel::attention
