// Copies means into panels. The cells of a block are always in one panel.
#include "attention/cpu/mean_panels.h"

#include <cmath>
#include <cstring>

namespace sparsereel::attention::cpu {
namespace {

/// Copies the first kCells columns of each row: to[d][c] = from[d][c] for c < kCells. Rows of `from` have kCells
/// floats, rows of `to` have 64.
template <int64_t kCells>
void copy_columns(const float* from, int64_t head_dim, float* to) {
  for (int64_t d = 0; d < head_dim; ++d) std::memcpy(to + d * kBlock, from + d * kCells, kCells * sizeof(float));
}

void copy_columns(const float* from, int64_t cells, int64_t head_dim, float* to) {
  if (cells == 4) return copy_columns<4>(from, head_dim, to);
  if (cells == 2) return copy_columns<2>(from, head_dim, to);
  copy_columns<1>(from, head_dim, to);
}

}  // namespace

MeanPanels::MeanPanels(const KernelParams& params)
    : cell_(params.mean_cell), head_dim_(params.head_dim), stride_(padded_dim(params.head_dim)) {
  if (cell_ == 0) return;
  const int64_t panels = blocks_of(params.key_blocks() * (kBlock / cell_));
  keys_.resize(static_cast<size_t>(panels * kBlock * head_dim_));
  values_.resize(static_cast<size_t>(panels * kBlock * stride_));
  key_scale_.resize(static_cast<size_t>(panels * kBlock));
}

MeanCells MeanPanels::gather(const PackedMeans& means, const uint8_t* kept, int64_t blocks) {
  if (cell_ == 0) return {};
  MeanCells result{.keys = keys_.data(),
                   .values = values_.data(),
                   .key_scale = key_scale_.data(),
                   .count = 0,
                   .log2_weight = static_cast<float>(std::log2(cell_))};
  const int64_t cells = means.cells;
  for (int64_t j = 0; j < blocks; ++j) {
    if (kept[j] != 0) continue;
    const int64_t at = result.count, panel = at / kBlock * kBlock;
    copy_columns(means.keys + j * cells * head_dim_, cells, head_dim_, &keys_[panel * head_dim_ + at % kBlock]);
    std::memcpy(&values_[at * stride_], means.values + j * cells * stride_, cells * stride_ * sizeof(float));
    if (means.key_scale != nullptr)
      std::memcpy(&key_scale_[at], means.key_scale + j * cells, static_cast<size_t>(cells) * sizeof(float));
    result.count += cells;
  }
  return result;
}

}  // namespace sparsereel::attention::cpu
