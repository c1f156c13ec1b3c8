// The table of dtypes, and the sizes of tensors in bytes.
#include "models/store/checkpoint/tensor_list.h"

#include <algorithm>
#include <array>
#include <limits>

namespace sparsereel::models {
namespace {

struct DtypeInfo {
  Dtype dtype;
  std::string_view name;
  Block block;
};
constexpr std::array kDtypes = {
    DtypeInfo{Dtype::f64, "F64", {1, 8}},         DtypeInfo{Dtype::f32, "F32", {1, 4}},
    DtypeInfo{Dtype::f16, "F16", {1, 2}},         DtypeInfo{Dtype::bf16, "BF16", {1, 2}},
    DtypeInfo{Dtype::i64, "I64", {1, 8}},         DtypeInfo{Dtype::i32, "I32", {1, 4}},
    DtypeInfo{Dtype::i16, "I16", {1, 2}},         DtypeInfo{Dtype::i8, "I8", {1, 1}},
    DtypeInfo{Dtype::u8, "U8", {1, 1}},           DtypeInfo{Dtype::boolean, "BOOL", {1, 1}},
    DtypeInfo{Dtype::f8_e4m3, "F8_E4M3", {1, 1}}, DtypeInfo{Dtype::f8_e5m2, "F8_E5M2", {1, 1}},
    DtypeInfo{Dtype::q4_0, "Q4_0", {32, 18}},     DtypeInfo{Dtype::q4_1, "Q4_1", {32, 20}},
    DtypeInfo{Dtype::q5_0, "Q5_0", {32, 22}},     DtypeInfo{Dtype::q5_1, "Q5_1", {32, 24}},
    DtypeInfo{Dtype::q8_0, "Q8_0", {32, 34}},     DtypeInfo{Dtype::q2_k, "Q2_K", {256, 84}},
    DtypeInfo{Dtype::q3_k, "Q3_K", {256, 110}},   DtypeInfo{Dtype::q4_k, "Q4_K", {256, 144}},
    DtypeInfo{Dtype::q5_k, "Q5_K", {256, 176}},   DtypeInfo{Dtype::q6_k, "Q6_K", {256, 210}},
    DtypeInfo{Dtype::iq4_nl, "IQ4_NL", {32, 18}}, DtypeInfo{Dtype::iq4_xs, "IQ4_XS", {256, 136}},
    DtypeInfo{Dtype::mxfp8, "MXFP8", {32, 33}},   DtypeInfo{Dtype::nvfp4, "NVFP4", {16, 9}},
    DtypeInfo{Dtype::int4, "INT4", {8, 4}},       DtypeInfo{Dtype::awq4, "AWQ4", {64, 40}},
    DtypeInfo{Dtype::f8_e8m0, "F8_E8M0", {1, 1}},
};
static_assert([] {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (static_cast<size_t>(kDtypes[i].dtype) != i) return false;
  return kDtypes.back().dtype == Dtype::f8_e8m0;
}());

const DtypeInfo& info(Dtype dtype) {
  return kDtypes[static_cast<size_t>(dtype)];
}

/// Returns a * b, or nullopt if it does not fit into an int64.
std::optional<uint64_t> multiply(uint64_t a, uint64_t b) {
  if (b != 0 && a > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / b) return std::nullopt;
  return a * b;
}

}  // namespace

Block block_of(Dtype dtype) {
  return info(dtype).block;
}
size_t size_of(Dtype dtype) {
  return info(dtype).block.bytes;
}
std::string_view name(Dtype dtype) {
  return info(dtype).name;
}
std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, Dtype dtype) {
  const auto [elements, size] = block_of(dtype);
  std::optional<uint64_t> count = 1;
  bool empty = false;
  for (const int64_t dimension : shape) {
    empty = empty || dimension == 0;
    count = multiply(*count, static_cast<uint64_t>(std::max<int64_t>(dimension, 1)));
    if (!count) return std::nullopt;
  }
  const auto whole = static_cast<uint64_t>(elements);
  if (empty) return multiply(*count, size) ? std::optional<uint64_t>(0) : std::nullopt;
  return *count % whole == 0 ? multiply(*count / whole, size) : std::nullopt;
}

uint64_t TensorEntry::elements() const {
  return byte_count(shape, Dtype::u8).value_or(0);
}

size_t bytes_of_row(const TensorEntry& entry) {
  const Block block = block_of(entry.dtype);
  const uint64_t columns = entry.elements() / static_cast<uint64_t>(entry.shape.front());
  return static_cast<size_t>(columns) / static_cast<size_t>(block.elements) * block.bytes;
}

uint64_t own_bytes(const TensorEntry& entry) {
  return entry.group_rows > 0 ? static_cast<uint64_t>(entry.shape.front()) * bytes_of_row(entry) : entry.bytes;
}

std::optional<uint64_t> covered_bytes(const TensorEntry& entry) {
  if (entry.group_rows > 0) {
    const int64_t groups = entry.shape.front() / entry.group_rows;
    return static_cast<uint64_t>((groups - 1) * entry.group_step + entry.group_rows) * bytes_of_row(entry);
  }
  if (entry.strides.empty() || entry.elements() == 0) return byte_count(entry.shape, entry.dtype);
  uint64_t last = 0;  // distance from the first element to the last, in elements
  for (size_t i = 0; i < entry.shape.size(); ++i) {
    const auto step = multiply(static_cast<uint64_t>(entry.shape[i] - 1), static_cast<uint64_t>(entry.strides[i]));
    if (!step || __builtin_add_overflow(last, *step, &last)) return std::nullopt;
  }
  return last == std::numeric_limits<uint64_t>::max() ? std::nullopt : multiply(last + 1, size_of(entry.dtype));
}

}  // namespace sparsereel::models
