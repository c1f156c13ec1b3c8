// Aligns and checks the workspace for every executor.
#include "attention/core/executor.h"

#include "attention/core/refusal.h"

namespace sparsereel::attention {

void* Executor::aligned(const Call& call, void* workspace, size_t bytes, size_t alignment) const {
  const size_t needed = workspace_bytes(call);
  if (workspace == nullptr)
    throw Refusal(SPARSEREEL_BAD_ARGUMENT, "workspace is null",
                  "pass " + std::to_string(needed) + " bytes of the device's memory");
  if (bytes < needed)
    throw Refusal(SPARSEREEL_WORKSPACE_TOO_SMALL,
                  "the workspace holds " + std::to_string(bytes) + " bytes, this call needs " + std::to_string(needed),
                  "ask for the workspace size of each call, and pass the largest");
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
}

}  // namespace sparsereel::attention
