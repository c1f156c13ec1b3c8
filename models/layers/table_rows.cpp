// Copies rows as they are stored, and unpacks the copies.
#include "models/layers/table_rows.h"

#include <ATen/ATen.h>

#include "attention/token_gather.h"
#include "models/layers/unpack.h"

namespace sparsereel::models {
namespace {

/// Returns table[ids] of a matrix, with our own kernel, because torch's takes 60 ms to load on a GPU.
at::Tensor gathered(const at::Tensor& table, const at::Tensor& ids) {
  return attention::gather_tokens(table.unsqueeze(0), ids).squeeze(0);
}

}  // namespace

at::Tensor table_rows(const Linear& table, const at::Tensor& ids, at::ScalarType dtype) {
  const at::Tensor scale = table.scale.defined() ? table.scale.index_select(0, ids) : at::Tensor();
  if (table.rows.empty()) {
    if (!scale.defined()) return gathered(table.weight, ids).to(dtype);
    const at::Tensor rows = gathered(table.weight.view(at::kByte), ids).view(at::kFloat8_e4m3fn);
    return (rows.to(at::kFloat) * scale.unsqueeze(1)).to(dtype);
  }
  StoredRows rows = table.rows.front();  // a table is stored in one part
  const int64_t bytes = packed_bytes(rows.dtype, rows.columns);
  const at::Tensor stored = table.weight.narrow(0, rows.offset, rows.rows * bytes).view({rows.rows, bytes});
  rows.rows = ids.size(0);
  rows.offset = 0;
  for (LowRank& delta : rows.deltas) delta.up = delta.up.index_select(0, ids);
  return unpack(gathered(stored, ids).view(-1), {rows}, scale, dtype);
}

}  // namespace sparsereel::models
