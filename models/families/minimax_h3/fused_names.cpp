// Compares how well two orders of rows explain the lengths of rows.
#include "models/families/minimax_h3/fused_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "models/layers/cuda/packed_blocks.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kKinds = 3;  // queries, keys, values
constexpr const char *kFusedLayer = ".attn.qkv_proj.weight", *kNormOfQueries = ".attn.q_norm.weight";

// A few rows of a head and a few columns of a row are enough. Reading them touches a tenth of a layer's pages.
constexpr int64_t kSampledRows = 16, kSampledColumns = 64;

bool has_plain_numbers(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

double plain_number_at(const std::byte* data, Dtype dtype, size_t i) {
  const auto* from = reinterpret_cast<const uint8_t*>(data);
  if (dtype == Dtype::f32) return packed_bits::float_at(from + 4 * i);
  return dtype == Dtype::f16 ? packed_bits::half_at(from + 2 * i) : packed_bits::bfloat_at(from + 2 * i);
}

/// Returns the mean logarithm of the squared lengths of some rows, for each group of `dim` consecutive rows. Returns
/// nothing if a row holds only zeros, or no finite numbers.
std::vector<double> lengths_of_groups(const TensorFile& file, const TensorEntry& entry, int64_t dim) {
  const std::span<const std::byte> data = file.data(entry);
  const size_t row_bytes = bytes_of_row(entry);
  const int64_t columns = std::min(entry.shape[1], kSampledColumns), step = std::max<int64_t>(dim / kSampledRows, 1);
  std::vector<double> groups;
  for (int64_t first = 0; first < entry.shape[0]; first += dim) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = first; row < first + dim; row += step, ++count) {
      double squares = 0;
      for (int64_t i = 0; i < columns; ++i) {
        const double x =
            plain_number_at(data.data() + static_cast<size_t>(row) * row_bytes, entry.dtype, static_cast<size_t>(i));
        squares += x * x;
      }
      sum += std::log(squares);
    }
    if (!std::isfinite(sum)) return {};
    groups.push_back(sum / static_cast<double>(count));
  }
  return groups;
}

/// The sums of squares of an analysis of variance over several layers, each with its own three means.
struct Variance {
  double between = 0, within = 0;
  int64_t between_freedom = 0, within_freedom = 0;

  void add(const std::vector<double>& groups, FusedRows order) {
    const int64_t heads = std::ssize(groups) / kKinds;
    std::array<double, kKinds> means = {};
    const auto kind = [&](size_t group) {
      const auto place = static_cast<int64_t>(group);
      return static_cast<size_t>(order == FusedRows::by_kind ? place / heads : place % kKinds);
    };
    for (size_t i = 0; i < groups.size(); ++i) means[kind(i)] += groups[i] / static_cast<double>(heads);
    double mean = 0;
    for (const double each : means) mean += each / kKinds;
    for (size_t i = 0; i < groups.size(); ++i) within += std::pow(groups[i] - means[kind(i)], 2);
    for (const double each : means) between += static_cast<double>(heads) * std::pow(each - mean, 2);
    between_freedom += kKinds - 1;
    within_freedom += std::ssize(groups) - kKinds;
  }
  /// Returns Fisher's ratio, about 1 if the kinds of rows do not differ.
  double ratio() const {
    constexpr double kLeastNoise = 1e-12;  // rows of exactly equal lengths have none
    const double noise = within / static_cast<double>(within_freedom);
    return between / static_cast<double>(between_freedom) / std::max(noise, kLeastNoise);
  }
};

/// Returns lengths_of_groups() of a fused layer, with a group for each head and kind; nothing if they do not tell.
std::vector<double> lengths_in_layer(const std::string& name, const TensorTable& tensors,
                                     const StoredWeights& weights) {
  const auto norm = tensors.find(name.substr(0, name.size() - std::string_view(kFusedLayer).size()) + kNormOfQueries);
  const auto& [file, entry] = tensors.at(name);
  if (norm == tensors.end() || entry->shape.size() != 2 || entry->shape[1] == 0 || !has_plain_numbers(entry->dtype) ||
      !entry->strides.empty() || norm->second.second->shape.size() != 1)
    return {};
  const int64_t dim = norm->second.second->shape[0];
  // With one head, both orders are the same. A damaged file may state a dim whose multiples overflow.
  if (dim <= 0 || dim > entry->shape[0] / (2 * kKinds) || entry->shape[0] % (kKinds * dim) != 0) return {};
  return lengths_of_groups(*weights.files.at(file), *entry, dim);
}

/// Returns the order that explains the lengths much better than noise and than the other order, if one does.
std::optional<FusedRows> more_likely(const Variance& by_kind, const Variance& by_head) {
  constexpr double kLeastRatio = 10;  // noise alone exceeds this less than once in a thousand models of two layers
  constexpr double kLeastDifference = 2;
  if (by_kind.within_freedom == 0) return std::nullopt;
  const double kind_ratio = by_kind.ratio(), head_ratio = by_head.ratio();
  if (kind_ratio > kLeastRatio && kind_ratio > kLeastDifference * head_ratio) return FusedRows::by_kind;
  if (head_ratio > kLeastRatio && head_ratio > kLeastDifference * kind_ratio) return FusedRows::by_head;
  return std::nullopt;
}

}  // namespace

std::optional<FusedRows> fused_rows_by_numbers(const TensorTable& tensors, const StoredWeights& weights) {
  constexpr int64_t kEnough = 100, kMost = 2000;  // degrees of freedom; a layer of the published model has 165
  Variance by_kind, by_head;
  for (const auto& [name, place] : tensors) {
    const auto order = more_likely(by_kind, by_head);
    if ((order && by_kind.within_freedom > kEnough) || by_kind.within_freedom > kMost) break;
    if (!name.ends_with(kFusedLayer)) continue;
    const std::vector<double> groups = lengths_in_layer(name, tensors, weights);
    if (groups.empty()) continue;
    by_kind.add(groups, FusedRows::by_kind);
    by_head.add(groups, FusedRows::by_head);
  }
  return more_likely(by_kind, by_head);
}

FusedRows fused_rows_of(const TensorTable& tensors, const StoredWeights& weights) {
  if (const auto order = fused_rows_by_numbers(tensors, weights)) return *order;
  const bool is_index = weights.origin.extension() == ".json", is_pruned = tensors.contains("adaln_t_table");
  const auto has_same_name = [&](const auto& tensor) { return tensors.contains(tensor.first); };
  const bool has_prefix = std::ranges::none_of(weights.tensors, has_same_name);
  const bool is_reduced = std::ranges::any_of(tensors, [](const auto& tensor) {
    return tensor.first.ends_with(kFusedLayer) && !has_plain_numbers(tensor.second.second->dtype);
  });
  return is_index && !is_pruned && !has_prefix && !is_reduced ? FusedRows::by_head : FusedRows::by_kind;
}

}  // namespace sparsereel::models
