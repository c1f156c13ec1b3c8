// Tells the order of a fused layer's rows by comparing how well each of the two possible orders explains the lengths of
// the rows.
#include "models/families/minimax_h3/fused_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/layers/cuda/packed_blocks.h"
#include "models/store/checkpoint/joined_rows.h"
#include "models/store/checkpoint/quantization.h"
#include "models/store/checkpoint/quantized_format.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kKinds = 3;  // queries, keys, values
constexpr const char *kFusedLayer = ".attn.qkv_proj.weight", *kNormOfQueries = ".attn.q_norm.weight";

// A sample is enough: some rows of each head, and the first columns of each row. Reading it touches a tenth of the
// memory pages that hold the layer.
constexpr int64_t kSampledRows = 16, kSampledColumns = 64;

bool has_plain_numbers(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// Reads the numbers of a row, eight at a time, and converts them to fp32.
struct RowReader {
  int64_t elements = 0, bytes = 0;  // size of a block of numbers; 0 for a dtype that cannot be read
  void (*eight)(const uint8_t* block, int first, float* out) = nullptr;
};

template <Dtype kDtype>
void read_eight(const uint8_t* block, int first, float* out) {
  PackedBlock<kDtype>::at(block, first, out);
  if constexpr (kHasBlockScale<kDtype>)
    for (int i = 0; i < kUnpackedAtOnce; ++i) out[i] *= PackedBlock<kDtype>::scale_of(block);
}

template <Dtype kDtype>
constexpr RowReader reader() {
  return {PackedBlock<kDtype>::elements, PackedBlock<kDtype>::bytes, read_eight<kDtype>};
}

RowReader reader_of(Dtype dtype) {
  static const std::map<Dtype, RowReader> readers = {
      {Dtype::f32, reader<Dtype::f32>()},         {Dtype::f16, reader<Dtype::f16>()},
      {Dtype::bf16, reader<Dtype::bf16>()},       {Dtype::i8, reader<Dtype::i8>()},
      {Dtype::f8_e4m3, reader<Dtype::f8_e4m3>()}, {Dtype::f8_e5m2, reader<Dtype::f8_e5m2>()},
      {Dtype::q4_0, reader<Dtype::q4_0>()},       {Dtype::q4_1, reader<Dtype::q4_1>()},
      {Dtype::q5_0, reader<Dtype::q5_0>()},       {Dtype::q5_1, reader<Dtype::q5_1>()},
      {Dtype::q8_0, reader<Dtype::q8_0>()},       {Dtype::q2_k, reader<Dtype::q2_k>()},
      {Dtype::q3_k, reader<Dtype::q3_k>()},       {Dtype::q4_k, reader<Dtype::q4_k>()},
      {Dtype::q5_k, reader<Dtype::q5_k>()},       {Dtype::q6_k, reader<Dtype::q6_k>()},
      {Dtype::iq4_nl, reader<Dtype::iq4_nl>()},   {Dtype::iq4_xs, reader<Dtype::iq4_xs>()},
      {Dtype::mxfp8, reader<Dtype::mxfp8>()},     {Dtype::nvfp4, reader<Dtype::nvfp4>()},
      {Dtype::int4, reader<Dtype::int4>()},       {Dtype::awq4, reader<Dtype::awq4>()}};
  const auto found = readers.find(dtype);
  return found == readers.end() ? RowReader{} : found->second;
}

/// The first numbers of each row of one layer's weight, and the factors that scale its rows.
struct LayerNumbers {
  std::span<const std::byte> data = {};
  int64_t rows = 0, columns = 0;  // `columns` counts only those that are read
  size_t row_bytes = 0;
  RowReader reader = {};
  /// One for each row; empty if one factor scales all rows, because one factor changes no ratio of lengths.
  std::vector<float> factors = {};
  std::vector<std::byte> joined = {};  // owner of `data` if several tensors hold it

  /// Returns the logarithm of the sum of squares of a row's first numbers. Files whose rows were rotated before
  /// quantizing give the same result, because a rotation keeps a row's length.
  double squared_length(int64_t row) const {
    const auto* begin = reinterpret_cast<const uint8_t*>(data.data()) + static_cast<size_t>(row) * row_bytes;
    double squares = 0;
    for (int64_t i = 0; i + kUnpackedAtOnce <= columns; i += kUnpackedAtOnce) {
      std::array<float, kUnpackedAtOnce> numbers{};
      reader.eight(begin + i / reader.elements * reader.bytes, static_cast<int>(i % reader.elements), numbers.data());
      for (const float x : numbers) squares += static_cast<double>(x) * static_cast<double>(x);
    }
    const double factor = factors.empty() ? 1 : static_cast<double>(factors[static_cast<size_t>(row)]);
    return std::log(squares * factor * factor);
  }
};

/// Returns the factors of a quantized layer's rows; an empty vector if one factor scales all rows.
std::vector<float> factors_of_rows(const QuantizedLayer& layer, const StoredWeights& weights) {
  for (const char* part : {"weight_scale", "scale_weight"}) {
    const auto found = layer.tensors.find(part);
    if (found == layer.tensors.end()) continue;
    const auto& [file, entry] = found->second;
    const bool is_each = !entry->shape.empty() && entry->shape[0] == layer.rows && layer.rows > 1;
    const RowReader reader = has_plain_numbers(entry->dtype) ? reader_of(entry->dtype) : RowReader{};
    if (!is_each || reader.eight == nullptr || bytes_of_row(*entry) * entry->shape[0] != entry->bytes) continue;
    const auto* data = reinterpret_cast<const uint8_t*>(weights.files.at(file)->data(*entry).data());
    std::vector<float> factors(static_cast<size_t>(layer.rows / kUnpackedAtOnce * kUnpackedAtOnce));
    for (int64_t i = 0; i < std::ssize(factors); i += kUnpackedAtOnce)
      reader.eight(data + i / reader.elements * reader.bytes, 0, factors.data() + i);
    if (std::ssize(factors) == layer.rows) return factors;
  }
  return {};
}

/// For each group of `dim` consecutive rows, returns the mean of squared_length() over the sampled rows. Returns an
/// empty vector if a row holds only zeros, or numbers that are not finite.
std::vector<double> lengths_of_groups(const LayerNumbers& numbers, int64_t dim) {
  const int64_t step = std::max<int64_t>(dim / kSampledRows, 1);
  std::vector<double> groups;
  for (int64_t first = 0; first < numbers.rows; first += dim) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = first; row < first + dim; row += step, ++count) sum += numbers.squared_length(row);
    if (!std::isfinite(sum)) return {};
    groups.push_back(sum / static_cast<double>(count));
  }
  return groups;
}

/// The sums of squares of an analysis of variance, added up over several layers. Queries, keys and values have separate
/// means in each layer.
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
    constexpr double kLeastNoise = 1e-12;  // avoids a division by 0 if all rows are equally long
    const double noise = within / static_cast<double>(within_freedom);
    return between / static_cast<double>(between_freedom) / std::max(noise, kLeastNoise);
  }
};

/// Reads numbers that lie in one tensor. Returns no rows for a type that cannot be read.
LayerNumbers numbers_of_tensor(const TensorEntry& entry, const TensorFile& file) {
  const RowReader reader = reader_of(entry.dtype);
  if (reader.eight == nullptr) return {};
  return {.data = file.data(entry),
          .rows = entry.shape[0],
          .columns = std::min(entry.shape[1], kSampledColumns),
          .row_bytes = bytes_of_row(entry),
          .reader = reader};
}

/// Reads numbers whose codes and scales lie in several tensors. Returns no rows if these are damaged, which loading
/// reports.
LayerNumbers joined_numbers(const QuantizedLayer& layer, const StoredWeights& weights) {
  if (!problem_of(layer).empty()) return {};
  LayerNumbers numbers = {.rows = layer.rows,
                          .columns = std::min(layer.columns, kSampledColumns),
                          .reader = reader_of(layer.format->packed)};
  numbers.row_bytes = static_cast<size_t>(numbers.columns / numbers.reader.elements * numbers.reader.bytes);
  const LayerTensors tensors(layer, weights.files);
  try {
    const JoinedRows rows(tensors, numbers.rows, numbers.columns);
    numbers.joined.resize(rows.bytes());
    rows.read(0, numbers.joined);
    numbers.factors = joined_row_scales(tensors, numbers.rows);
  } catch (const Error&) {
    return {};
  }
  numbers.data = numbers.joined;
  return numbers;
}

/// Returns lengths_of_groups() of a fused layer, with one group for each head's queries, keys and values. Returns an
/// empty vector if the layer's numbers cannot be read, or cannot tell the order.
std::vector<double> lengths_in_layer(const std::string& name, const TensorTable& tensors, const StoredWeights& weights,
                                     const QuantizedLayers& quantized) {
  const auto norm = tensors.find(name.substr(0, name.size() - std::string_view(kFusedLayer).size()) + kNormOfQueries);
  const auto& [file, entry] = tensors.at(name);
  if (norm == tensors.end() || entry->shape.size() != 2 || entry->shape[1] < kUnpackedAtOnce ||
      !entry->strides.empty() || norm->second.second->shape.size() != 1)
    return {};
  const int64_t dim = norm->second.second->shape[0];
  // With one head, both orders are the same. The division, in place of a product, cannot overflow if a damaged file
  // states a huge dim.
  if (dim <= 0 || dim > entry->shape[0] / (2 * kKinds) || entry->shape[0] % (kKinds * dim) != 0) return {};
  const auto layer = quantized.find(name);
  if (layer != quantized.end() && layer->second.is_joined())
    return lengths_of_groups(joined_numbers(layer->second, weights), dim);
  LayerNumbers numbers = numbers_of_tensor(*entry, *weights.files.at(file));
  if (layer != quantized.end()) numbers.factors = factors_of_rows(layer->second, weights);
  return lengths_of_groups(numbers, dim);
}

/// Returns the order that explains the lengths much better than noise would, and much better than the other order does.
/// Returns nothing if neither does.
std::optional<FusedRows> more_likely(const Variance& by_kind, const Variance& by_head) {
  constexpr double kLeastRatio = 10;  // by chance alone, fewer than one in a thousand models of two layers exceed this
  constexpr double kLeastDifference = 2;
  if (by_kind.within_freedom == 0) return std::nullopt;
  const double kind_ratio = by_kind.ratio(), head_ratio = by_head.ratio();
  if (kind_ratio > kLeastRatio && kind_ratio > kLeastDifference * head_ratio) return FusedRows::by_kind;
  if (head_ratio > kLeastRatio && head_ratio > kLeastDifference * kind_ratio) return FusedRows::by_head;
  return std::nullopt;
}

}  // namespace

std::optional<FusedRows> fused_rows_by_numbers(const TensorTable& tensors, const StoredWeights& weights) {
  // Layers are read until one order is the more likely one and more than kEnough degrees of freedom were seen, and
  // never beyond kMost. A layer of the published model adds 165.
  constexpr int64_t kEnough = 100, kMost = 2000;
  const QuantizedLayers quantized = quantized_layers(tensors, weights.files);
  Variance by_kind, by_head;
  for (const auto& [name, place] : tensors) {
    const auto order = more_likely(by_kind, by_head);
    if ((order && by_kind.within_freedom > kEnough) || by_kind.within_freedom > kMost) break;
    if (!name.ends_with(kFusedLayer)) continue;
    const std::vector<double> groups = lengths_in_layer(name, tensors, weights, quantized);
    if (groups.empty()) continue;
    by_kind.add(groups, FusedRows::by_kind);
    by_head.add(groups, FusedRows::by_head);
  }
  return more_likely(by_kind, by_head);
}

FusedRows fused_rows_by_form(const TensorTable& tensors, const StoredWeights& weights) {
  const bool is_index = weights.origin.extension() == ".json", is_pruned = tensors.contains("adaln_t_table");
  const auto has_same_name = [&](const auto& tensor) { return tensors.contains(tensor.first); };
  const bool has_prefix = std::ranges::none_of(weights.tensors, has_same_name);
  const bool is_reduced = std::ranges::any_of(tensors, [](const auto& tensor) {
    return tensor.first.ends_with(kFusedLayer) && !has_plain_numbers(tensor.second.second->dtype);
  });
  return is_index && !is_pruned && !has_prefix && !is_reduced ? FusedRows::by_head : FusedRows::by_kind;
}

std::string doubt_about_rows(const TensorTable& tensors, const StoredWeights& weights, FusedRows order) {
  const auto is_fused = [](const auto& tensor) { return tensor.first.ends_with(kFusedLayer); };
  if (std::ranges::none_of(tensors, is_fused)) return {};
  const bool by_head = order == FusedRows::by_head;
  return weights.origin.string() +
         ": its numbers do not tell how the rows of attn.qkv_proj are ordered. They are read as " +
         (by_head ? "head by head, as MiniMax publishes them" : "queries, keys, values, as ComfyUI stores them") +
         ". If videos are noise, the file has the other order: use a file of " + (by_head ? "MiniMax" : "ComfyUI") +
         " or a diffusers folder";
}

}  // namespace sparsereel::models
