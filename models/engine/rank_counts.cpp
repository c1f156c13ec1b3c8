// A row a layer, of which every rank gets everybody's; sums are made on the host, in the order of the ranks.
#include "models/engine/rank_counts.h"

#include <ATen/ATen.h>

#include <array>
#include <bit>

namespace sparsereel::models {
namespace {

constexpr size_t kColumns = 10;

std::array<int64_t, kColumns> row_of(const attention::Statistics& s) {
  const auto bits = [](double x) { return std::bit_cast<int64_t>(x); };
  return {s.total_blocks,
          s.kept_blocks,
          s.skipped_pv_blocks,
          s.mean_blocks,
          s.calls,
          s.predicted_tiles,
          bits(s.seconds),
          bits(s.sum_relative_l1),
          bits(s.max_relative_l1),
          bits(s.sum_predicted_error)};
}

attention::Statistics statistics_of(const int64_t* row) {
  const auto real = [](int64_t x) { return std::bit_cast<double>(x); };
  return {.total_blocks = row[0],
          .kept_blocks = row[1],
          .skipped_pv_blocks = row[2],
          .mean_blocks = row[3],
          .calls = row[4],
          .seconds = real(row[6]),
          .sum_relative_l1 = real(row[7]),
          .max_relative_l1 = real(row[8]),
          .sum_predicted_error = real(row[9]),
          .predicted_tiles = row[5]};
}

}  // namespace

void add_up_ranks(std::vector<attention::Statistics>& layers, std::vector<int64_t>& kept_by_rank, Group& group,
                  at::Device device) {
  std::vector<int64_t> rows;
  for (const attention::Statistics& layer : layers)
    for (const int64_t value : row_of(layer)) rows.push_back(value);
  const at::Tensor own = at::tensor(rows, at::kLong).to(device);
  std::vector<at::Tensor> all(static_cast<size_t>(group.size()));
  for (at::Tensor& each : all) each = at::empty_like(own);
  group.all_gather(own, all);
  for (at::Tensor& each : all) each = each.cpu();
  group.check();
  layers.assign(layers.size(), {});
  kept_by_rank.resize(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int64_t* values = all[rank].const_data_ptr<int64_t>();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const attention::Statistics of_rank = statistics_of(values + layer * kColumns);
      layers[layer] += of_rank;
      kept_by_rank[rank] += of_rank.kept_blocks;
    }
  }
}

}  // namespace sparsereel::models
