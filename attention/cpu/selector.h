// The rule by which blocks are selected.
#pragma once

#include <cstdint>
#include <span>

#include "attention/call_policy.h"
#include "attention/head_part.h"

namespace sparsereel::attention::cpu {

struct Selector {
  std::span<const HeadPolicy> heads;  // one policy per head
  int64_t rows = 192;                 // queries that share one selection
  Ranking ranking = Ranking::mass;
  const HeadPart* part = nullptr;  // null if the call has all heads
};

}  // namespace sparsereel::attention::cpu
