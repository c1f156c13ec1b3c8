// Copies at once where a kernel takes them, else one after another.
#include "models/layers/strided_copies.h"

#include <ATen/ATen.h>

#ifdef SPARSEREEL_CUDA
#include "models/layers/cuda_call.h"
#endif

namespace sparsereel::models {

void copy_all(std::span<const StridedCopy> copies) {
#ifdef SPARSEREEL_CUDA
  if (copy_on_cuda(copies)) return;
#endif
  for (const auto& [to, from] : copies) to.copy_(from);
}

}  // namespace sparsereel::models
