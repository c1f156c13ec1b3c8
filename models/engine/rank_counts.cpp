// Gathers one row of counts for each layer from every rank, and adds the rows on the host, in the order of the ranks.
#include "models/engine/rank_counts.h"

#include <ATen/ATen.h>

#include <bit>

namespace sparsereel::models {
namespace {

constexpr size_t kColumns = attention::kStatisticsCounts.size() + attention::kStatisticsMeasures.size();

void append(std::vector<int64_t>& row, const attention::Statistics& s) {
  for (const auto count : attention::kStatisticsCounts) row.push_back(s.*count);
  for (const auto measure : attention::kStatisticsMeasures) row.push_back(std::bit_cast<int64_t>(s.*measure));
}

attention::Statistics statistics_of(const int64_t* row) {
  attention::Statistics s;
  for (const auto count : attention::kStatisticsCounts) s.*count = *row++;
  for (const auto measure : attention::kStatisticsMeasures) s.*measure = std::bit_cast<double>(*row++);
  return s;
}

}  // namespace

void add_up_ranks(std::vector<attention::Statistics>& layers, std::vector<int64_t>& kept_by_rank, Group& group,
                  at::Device device) {
  std::vector<int64_t> rows;
  for (const attention::Statistics& layer : layers) append(rows, layer);
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
