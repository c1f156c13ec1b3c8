// Gathers the means that a tile of 64 queries needs, so that they are next to each other in memory.
#pragma once

#include <vector>

#include "attention/cpu/packed_heads.h"

namespace sparsereel::attention::cpu {

/// Memory for the means of one tile at a time; each thread has its own. Copying takes less time than it saves, because
/// the kernel then computes only the means of dropped blocks.
class MeanPanels {
 public:
  explicit MeanPanels(const KernelParams& params);

  /// Returns the means of the dropped blocks among the first `blocks` blocks. The means point into this object.
  MeanCells gather(const PackedMeans& means, const uint8_t* kept, int64_t blocks);

 private:
  const int64_t cell_, head_dim_, stride_;
  std::vector<float> keys_, values_, key_scale_;
};

}  // namespace sparsereel::attention::cpu
