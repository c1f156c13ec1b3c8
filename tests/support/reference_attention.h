// Scalar attention in double precision: the reference that the fast kernels are compared with.
#pragma once

#include <span>

#include "attention/cpu/block_sparse.h"

namespace sparsereel::attention::cpu {

/// Computes the same as block_sparse_attention(), whose comment describes the parameters, in the same order.
Counts reference_attention(const KernelParams& params, const BlockMap& map, std::span<const double> pv_thresholds,
                           Arithmetic arithmetic, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
