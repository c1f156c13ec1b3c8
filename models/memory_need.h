// Whether a video can fit into memory at all, asked before anything large is allocated: a Linux that runs out of memory
// kills instead of refusing.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "models/pipeline.h"
#include "models/spec.h"

namespace sparsereel::models {

/// Bytes; doubles, which no size overflows.
struct MemoryNeed {
  double host = 0;
  double device = 0;  // 0 where the device is the host
  double cache = 0;   // of one of them: what would not be needed without a cache of steps
};

/// What making the video holds at its worst moment at the very least: weights and most temporaries are left out, so
/// that nothing that would work is refused. A cache counts as one by which at least three steps are computed.
MemoryNeed least_memory(const GenerateSettings& settings, const GenerateRequest& request, const ModelSpec& spec,
                        c10::Device device, c10::ScalarType dtype);

/// Throws Error (exit code 2) where this process cannot come to have what is needed.
void check_memory(const GenerateSettings& settings, const MemoryNeed& need, c10::Device device);

}  // namespace sparsereel::models
