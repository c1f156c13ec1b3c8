// Looks up rows of a table, such as the embeddings of tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// Returns the rows `ids` (int64 [n], on the table's device) of the table's weight [out, in]: [n, in] in `dtype`, on
/// the same device. Only these rows are read and unpacked, so the table may be a file that is mapped into memory. The
/// weight may be packed or e4m3. Ids must be below `out`.
at::Tensor table_rows(const Linear& table, const at::Tensor& ids, at::ScalarType dtype);

}  // namespace sparsereel::models
