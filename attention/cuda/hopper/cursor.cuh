// A position in a ring of stages that copies fill ahead of the computation.
#pragma once

namespace sparsereel::attention::cuda::hopper {

/// T::kStages is the number of stages. `phase` is that of the stage's barriers.
template <typename T>
struct Cursor {
  int stage = 0, phase = 0;

  __device__ void advance() {
    if (++stage == T::kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace sparsereel::attention::cuda::hopper
