// Reads codes and scales as each format stores them.
#include "models/store/checkpoint/joined_rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/layers/cuda/packed_blocks.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMxColumns = PackedBlock<Dtype::mxfp8>::elements, kNvColumns = PackedBlock<Dtype::nvfp4>::elements,
                  kAwqColumns = PackedBlock<Dtype::awq4>::elements;

int64_t whole(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr int64_t kTileRows = 128;

/// Returns the position of a block's scale in cuBLAS's layout: tiles of 128 rows and 4 blocks.
int64_t tiled(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tiles = (blocks + 3) / 4;
  return (row / kTileRows * tiles + block / 4) * 512 + row % 32 * 16 + row % kTileRows / 32 * 4 + block % 4;
}

/// Reads the scales of blocks. They are stored in cuBLAS's tiles or row by row; the shape of the tensor tells which.
class BlockScales {
 public:
  BlockScales(const LayerTensors& tensors, int64_t block)
      : bytes_(tensors.bytes("weight_scale")),
        blocks_(tensors.layer().columns / block),
        tiled_(tensors.layer().find("weight_scale")->shape == tiled_shape(tensors.layer().rows, blocks_)) {
    if (tiled_ && tensors.layer().find("weight_scale")->group_rows % kTileRows != 0)
      tensors.refuse("weight_scale", "lies in tiles of rows of several layers");
  }

  std::byte at(int64_t row, int64_t block) const {
    return bytes_[static_cast<size_t>(tiled_ ? tiled(row, block, blocks_) : row * blocks_ + block)];
  }

 private:
  std::span<const std::byte> bytes_;
  int64_t blocks_;
  bool tiled_;
};

std::byte swapped(std::byte codes) {
  return codes << 4 | codes >> 4;
}

/// Returns the scale of each row. If the tensor has only one number, that is the scale of all rows.
std::vector<float> spread(const LayerTensors& tensors, const std::string& part, int64_t rows) {
  std::vector<float> scales = tensors.numbers(part);
  const float first = scales.front();
  scales.resize(static_cast<size_t>(rows), first);
  return scales;
}

/// Returns the code of a column. A row begins with the low four bits of all codes. If codes have six bits, the high two
/// bits of all codes follow.
int code_of_w4a8(std::span<const std::byte> row, int64_t column, int64_t columns, int bits) {
  const auto byte = [&](int64_t at) { return static_cast<int>(row[static_cast<size_t>(at)]); };
  const int low = byte(column / 2) >> 4 * (column % 2) & 15;
  return bits == 4 ? low : low | (byte(columns / 2 + column / 4) >> 2 * (column % 4) & 3) << 4;
}

float number_at(const uint8_t* p, Dtype dtype, size_t i) {
  switch (dtype) {
    case Dtype::f32:
      return packed_bits::float_at(p + 4 * i);
    case Dtype::f16:
      return packed_bits::half_at(p + 2 * i);
    case Dtype::bf16:
      return packed_bits::bfloat_at(p + 2 * i);
    default:
      return packed_bits::e4m3_at(p + i);  // U8 too: see numbers()
  }
}

bool is_number(Dtype dtype) {
  constexpr Dtype kNumbers[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f8_e4m3};
  return std::ranges::count(kNumbers, dtype) > 0;
}

}  // namespace

std::vector<int64_t> tiled_shape(int64_t rows, int64_t blocks) {
  return {whole(rows, kTileRows), whole(blocks, 4)};
}

int bits_of_w4a8(const QuantizedLayer& layer) {
  return layer.find("weight")->shape[1] * 2 == layer.columns ? 4 : 6;
}

int64_t group_of_w4a8(const QuantizedLayer& layer) {
  return layer.columns / layer.find("weight_s_rel")->shape[1];
}

JoinRow join_mxfp8(const LayerTensors& tensors, int64_t columns) {
  return [&tensors, codes = tensors.bytes("weight"), scales = BlockScales(tensors, kMxColumns), columns](
             int64_t row, std::span<std::byte> to) {
    const std::byte* from = codes.data() + row * tensors.layer().columns;
    std::byte* out = to.data();
    for (int64_t block = 0; block < columns / kMxColumns; ++block, from += kMxColumns) {
      out = std::copy_n(from, kMxColumns, out);
      *out = scales.at(row, block);
      if (*out++ == std::byte{0xFF}) tensors.refuse("weight_scale", "holds NaN or infinity");
    }
  };
}

JoinRow join_nvfp4(const LayerTensors& tensors, int64_t columns) {
  const bool swap = !tensors.layer().low_first();
  return [&tensors, codes = tensors.bytes("weight"), scales = BlockScales(tensors, kNvColumns), columns, swap](
             int64_t row, std::span<std::byte> to) {
    const std::byte* from = codes.data() + row * tensors.layer().columns / 2;
    std::byte* out = to.data();
    for (int64_t block = 0; block < columns / kNvColumns; ++block, from += kNvColumns / 2) {
      out = swap ? std::transform(from, from + kNvColumns / 2, out, swapped) : std::copy_n(from, kNvColumns / 2, out);
      *out = scales.at(row, block);
      if ((*out++ & std::byte{0x7F}) == std::byte{0x7F}) tensors.refuse("weight_scale", "holds NaN or infinity");
    }
  };
}

/// Without weight_scale_2, the file is LightX2V's: "alpha" is weight scale * input scale, and "input_global_scale" is 1
/// / input scale. So their product is the weight scale.
std::vector<float> scales_of_nvfp4(const LayerTensors& tensors, int64_t rows) {
  if (tensors.has("weight_scale_2")) return spread(tensors, "weight_scale_2", rows);
  const float scale = tensors.numbers("alpha").front() * tensors.numbers("input_global_scale").front();
  return std::vector<float>(static_cast<size_t>(rows), scale);
}

JoinRow join_w4a4(const LayerTensors& tensors, int64_t columns) {
  return
      [codes = tensors.bytes("weight"), all = tensors.layer().columns, columns](int64_t row, std::span<std::byte> to) {
        std::copy_n(codes.data() + row * all / 2, columns / 2, to.data());
      };
}

std::vector<float> scales_of_w4a4(const LayerTensors& tensors, int64_t rows) {
  return spread(tensors, "weight_scale", rows);
}

/// Replaces codes by the int8 numbers that they stand for, because int8 products need these. So a weight takes 8 bits
/// in memory, but 4 or 6 in the file.
JoinRow join_w4a8(const LayerTensors& tensors, int64_t columns) {
  const QuantizedLayer& layer = tensors.layer();
  const int bits = bits_of_w4a8(layer);
  std::vector<float> values;
  if (tensors.has("weight_codebook")) values = tensors.numbers("weight_codebook");
  for (int code = 0; values.size() < size_t{1} << bits; ++code)
    values.push_back(static_cast<float>(code - (1 << (bits - 1))));
  return [codes = tensors.bytes("weight"), relative = tensors.numbers("weight_s_rel"), values, bits, columns,
          all = layer.columns, group = group_of_w4a8(layer),
          row_bytes = layer.find("weight")->shape[1]](int64_t row, std::span<std::byte> to) {
    const auto own = codes.subspan(static_cast<size_t>(row * row_bytes), static_cast<size_t>(row_bytes));
    for (int64_t i = 0; i < columns; ++i) {
      const float value = values[static_cast<size_t>(code_of_w4a8(own, i, all, bits))];
      const float level = std::nearbyint(value * relative[static_cast<size_t>(row * (all / group) + i / group)]);
      to[static_cast<size_t>(i)] = static_cast<std::byte>(static_cast<int8_t>(std::clamp(level, -127.0F, 127.0F)));
    }
  };
}

std::vector<float> scales_of_w4a8(const LayerTensors& tensors, int64_t rows) {
  return spread(tensors, "weight_s_channel", rows);
}

/// The scales and zeros are [groups, rows of the stored weight].
JoinRow join_awq(const LayerTensors& tensors, int64_t columns) {
  const QuantizedLayer& layer = tensors.layer();
  return [&layer, codes = tensors.bytes("weight"), scales = tensors.numbers("weight_scale"),
          zeros = tensors.numbers("weight_zeros"), group = layer.columns / layer.find("weight_scale")->shape[0],
          columns](int64_t row, std::span<std::byte> to) {
    const std::byte* from = codes.data() + row * layer.columns / 2;
    const int64_t row_in_file = layer.row_in_file(row);
    std::byte* out = to.data();
    for (int64_t first = 0; first < columns; first += kAwqColumns, from += kAwqColumns / 2) {
      const auto at = static_cast<size_t>(first / group * layer.stored_rows + row_in_file);
      const std::array<float, 2> pair = {scales[at], zeros[at]};
      out = std::copy_n(from, kAwqColumns / 2, out);
      out = std::ranges::copy(std::as_bytes(std::span(pair)), out).out;
    }
  };
}

void LayerTensors::refuse(const std::string& part, const std::string& why) const {
  const auto& [file, entry] = layer_.tensors.at(part);
  throw bad_file(files_[file]->path().string(),
                 in_quotes(entry->name) + ", a scale of a weight in " + layer_.label() + ", " + why,
                 "download or export the file again");
}

std::span<const std::byte> LayerTensors::bytes(const std::string& part) const {
  const auto& [file, entry] = layer_.tensors.at(part);
  return entry->group_rows > 0 ? joined_groups(part) : files_[file]->data(*entry);
}

/// Returns the bytes of rows that lie in groups, one row behind the other.
std::span<const std::byte> LayerTensors::joined_groups(const std::string& part) const {
  std::vector<std::byte>& joined = joined_groups_[part];
  const auto& [file, entry] = layer_.tensors.at(part);
  const size_t row = bytes_of_row(*entry), group = static_cast<size_t>(entry->group_rows) * row;
  const std::span<const std::byte> all = files_[file]->covered(*entry);
  const int64_t groups = joined.empty() ? entry->shape.front() / entry->group_rows : 0;
  for (int64_t i = 0; i < groups; ++i) {
    const auto own = all.subspan(static_cast<size_t>(i * entry->group_step) * row, group);
    joined.insert(joined.end(), own.begin(), own.end());
  }
  return joined;
}

std::vector<float> LayerTensors::numbers(const std::string& part) const {
  const TensorEntry& entry = *layer_.find(part);
  // Some files store the e4m3 numbers of weight_s_rel as U8.
  const bool is_byte = entry.dtype == Dtype::u8 && part == "weight_s_rel";
  if (!is_number(entry.dtype) && !is_byte) refuse(part, "is stored as " + std::string(name(entry.dtype)));
  const auto* from = reinterpret_cast<const uint8_t*>(bytes(part).data());
  std::vector<float> numbers(entry.elements());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_at(from, entry.dtype, i);
  if (!std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); })) refuse(part, "holds NaN or infinity");
  return numbers;
}

JoinedRows::JoinedRows(const LayerTensors& tensors, int64_t rows, int64_t columns)
    : join_(tensors.layer().format->join(tensors, columns)),
      rows_(static_cast<size_t>(rows)),
      row_bytes_(*byte_count({columns}, tensors.layer().format->packed)),
      halves_swapped_(tensors.layer().find("weight")->halves_swapped) {}

void JoinedRows::read(size_t first, std::span<std::byte> to) const {
  std::vector<std::byte> whole;  // a row of which `to` takes a part
  while (!to.empty()) {
    const size_t row = first / row_bytes_, begin = first % row_bytes_, size = std::min(to.size(), row_bytes_ - begin);
    const auto stored = static_cast<int64_t>(halves_swapped_ ? (row + rows_ / 2) % rows_ : row);
    if (size == row_bytes_) {
      join_(stored, to.first(size));
    } else {
      whole.resize(row_bytes_);
      join_(stored, whole);
      std::ranges::copy(std::span(whole).subspan(begin, size), to.begin());
    }
    first += size;
    to = to.subspan(size);
  }
}

std::vector<float> joined_row_scales(const LayerTensors& tensors, int64_t rows) {
  const QuantizedLayer& layer = tensors.layer();
  if (layer.format->row_scales == nullptr) return {};
  std::vector<float> scales = layer.format->row_scales(tensors, rows);
  if (layer.find("weight")->halves_swapped)
    std::rotate(scales.begin(), scales.begin() + std::ssize(scales) / 2, scales.end());
  return scales;
}

std::vector<float> column_scales(const LayerTensors& tensors, int64_t columns) {
  if (!tensors.has("pre_quant_scale")) return {};
  std::vector<float> scales = tensors.numbers("pre_quant_scale");
  scales.resize(static_cast<size_t>(columns));
  return scales;
}

}  // namespace sparsereel::models
