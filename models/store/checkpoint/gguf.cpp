// Reads and checks the key-values and tensors of a GGUF.
#include "models/store/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "hilbert/error.h"
#include "models/files/byte_reader.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "GGUF";
constexpr const char* kGgufRemedy = "download the file again; it is incomplete or damaged";
constexpr uint32_t kMaxGgufRank = 5;
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxKept = 1 << 22;  // largest array that is kept, in elements; the largest vocabulary has 262,144
constexpr std::string_view kShapeKey = "comfy.gguf.orig_shape.";

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64, count };

/// A type and its number in files. A type without a dtype is known by name, for the error, but not supported.
struct GgufType {
  uint32_t number;
  std::string_view name;
  std::optional<Dtype> dtype = {};
};
constexpr GgufType kGgufTypes[] = {{0, "F32", Dtype::f32},
                                   {1, "F16", Dtype::f16},
                                   {2, "Q4_0", Dtype::q4_0},
                                   {3, "Q4_1", Dtype::q4_1},
                                   {6, "Q5_0", Dtype::q5_0},
                                   {7, "Q5_1", Dtype::q5_1},
                                   {8, "Q8_0", Dtype::q8_0},
                                   {9, "Q8_1"},
                                   {10, "Q2_K", Dtype::q2_k},
                                   {11, "Q3_K", Dtype::q3_k},
                                   {12, "Q4_K", Dtype::q4_k},
                                   {13, "Q5_K", Dtype::q5_k},
                                   {14, "Q6_K", Dtype::q6_k},
                                   {15, "Q8_K"},
                                   {16, "IQ2_XXS"},
                                   {17, "IQ2_XS"},
                                   {18, "IQ3_XXS"},
                                   {19, "IQ1_S"},
                                   {20, "IQ4_NL", Dtype::iq4_nl},
                                   {21, "IQ3_S"},
                                   {22, "IQ2_S"},
                                   {23, "IQ4_XS", Dtype::iq4_xs},
                                   {24, "I8"},
                                   {25, "I16"},
                                   {26, "I32"},
                                   {27, "I64"},
                                   {28, "F64"},
                                   {29, "IQ1_M"},
                                   {30, "BF16", Dtype::bf16},
                                   {34, "TQ1_0"},
                                   {35, "TQ2_0"},
                                   {39, "MXFP4"}};

std::string readable_types() {
  std::string names;
  for (const GgufType& type : kGgufTypes)
    if (type.dtype) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

bool is_kept(std::string_view key) {
  return key == "general.architecture" || key == "general.alignment" || key == "split.count" ||
         key.starts_with("tokenizer.ggml.") || key.starts_with(kShapeKey);
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, const std::string& path)
      : file_(file), path_(path), bytes_(file, path, kGgufRemedy) {}

  TensorList read() {
    bytes_.text(kMagic.size());
    const auto version = bytes_.number<uint32_t>();
    if (version != 2 && version != 3)
      throw bad_file(path_, "GGUF version " + std::to_string(version) + " is not supported; versions 2 and 3 are",
                     "convert the model again, with a newer program, for little-endian machines");
    const uint64_t tensors = count_of("tensors", kLeastTensor), values = count_of("key-values", kLeastValue);
    for (uint64_t i = 0; i < values; ++i) read_value();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    place_data();
    std::ranges::sort(list_.entries, {}, &TensorEntry::name);
    for (TensorEntry& entry : list_.entries) unfold(entry);
    return std::move(list_);
  }

 private:
  static constexpr uint64_t kLeastTensor = 8 + 4 + 4 + 8, kLeastValue = 8 + 4 + 1;  // smallest size in bytes

  [[noreturn]] void fail(const std::string& what) const { throw bad_file(path_, what, kGgufRemedy); }

  /// Reads a count of items of at least `least` bytes each, which must fit into the file.
  uint64_t count_of(const char* what, uint64_t least) {
    const auto count = bytes_.number<uint64_t>();
    if (count > bytes_.left() / least)
      fail("truncated: " + std::to_string(count) + " " + what + " do not fit into the file");
    return count;
  }

  std::string_view text() { return bytes_.text(bytes_.number<uint64_t>()); }

  std::string name(const char* what) {
    std::string name(text());
    check_utf8(name, std::string(what) + " " + in_quotes(name));
    return name;
  }

  void check_utf8(const std::string& text, const std::string& who) const {
    try {
      // dump() throws if the text is not UTF-8. Find that out here, because later calls of dump() expect no exception.
      static_cast<void>(json(text).dump());
    } catch (const json::exception&) {
      fail(who + ": is not UTF-8");
    }
  }

  void read_value() {
    const std::string key = name("key");
    if (!keys_.insert(key).second) fail("key " + in_quotes(key) + " appears twice");
    const bool kept = is_kept(key);
    const auto type = static_cast<ValueType>(bytes_.number<uint32_t>());
    const json value = type == ValueType::array ? array(key, kept) : scalar(key, type);
    if (key == "general.alignment") set_alignment(value);
    if (key.starts_with(kShapeKey)) shapes_[key.substr(kShapeKey.size())] = shape_of(key, value);
    if (!kept) return;
    std::string& text = list_.metadata[key];
    text = value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
    check_utf8(text, "key " + in_quotes(key));
  }

  json scalar(const std::string& key, ValueType type) {
    switch (type) {
      case ValueType::u8:
        return bytes_.number<uint8_t>();
      case ValueType::i8:
        return bytes_.number<int8_t>();
      case ValueType::u16:
        return bytes_.number<uint16_t>();
      case ValueType::i16:
        return bytes_.number<int16_t>();
      case ValueType::u32:
        return bytes_.number<uint32_t>();
      case ValueType::i32:
        return bytes_.number<int32_t>();
      case ValueType::f32:
        return bytes_.number<float>();
      case ValueType::boolean:
        return bytes_.number<uint8_t>() != 0;
      case ValueType::text:
        return text();
      case ValueType::u64:
        return bytes_.number<uint64_t>();
      case ValueType::i64:
        return bytes_.number<int64_t>();
      case ValueType::f64:
        return bytes_.number<double>();
      default:
        fail("key " + in_quotes(key) + " has the unknown type " + std::to_string(static_cast<uint32_t>(type)));
    }
  }

  /// Reads an array. Returns null instead of its elements if `kept` is false.
  json array(const std::string& key, bool kept) {
    constexpr std::array<uint64_t, static_cast<size_t>(ValueType::count)> kLeast = {1, 1, 2, 2, 4, 4, 4,
                                                                                    1, 8, 0, 8, 8, 8};
    const auto type = bytes_.number<uint32_t>();
    if (type >= kLeast.size() || kLeast[type] == 0)
      fail("key " + in_quotes(key) + " is an array of the unknown type " + std::to_string(type));
    const uint64_t count = count_of(("elements of " + in_quotes(key)).c_str(), kLeast[type]);
    const bool texts = static_cast<ValueType>(type) == ValueType::text;
    if (kept && count > kMaxKept)
      fail("key " + in_quotes(key) + " has " + std::to_string(count) + " elements, more than the limit of " +
           std::to_string(kMaxKept));
    json all = kept ? json::array() : json();
    if (!kept && !texts) bytes_.take(count * kLeast[type]);
    for (uint64_t i = 0; i < count && (kept || texts); ++i) {
      if (kept)
        all.push_back(scalar(key, static_cast<ValueType>(type)));
      else
        text();
    }
    return all;
  }

  void set_alignment(const json& value) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kMaxAlignment ||
        !std::has_single_bit(value.get<uint64_t>()))
      fail("general.alignment is " + value.dump(-1, ' ', false, json::error_handler_t::replace) +
           ", not a power of two");
    alignment_ = value.get<uint64_t>();
  }

  std::vector<int64_t> shape_of(const std::string& key, const json& value) const {
    std::vector<int64_t> shape;
    const bool fits =
        value.is_array() && value.size() <= kMaxGgufRank && std::ranges::all_of(value, [](const json& size) {
          return size.is_number_integer() && size >= 0 && size <= std::numeric_limits<int32_t>::max();
        });
    if (!fits) fail("key " + in_quotes(key) + " is not a shape");
    for (const json& size : value) shape.push_back(size.get<int64_t>());
    return shape;
  }

  void read_tensor() {
    TensorEntry entry;
    entry.name = name("tensor");
    const std::string who = "tensor " + in_quotes(entry.name) + ": ";
    if (!names_.insert(entry.name).second) fail(who + "appears twice");
    const auto rank = bytes_.number<uint32_t>();
    if (rank > kMaxGgufRank)
      fail(who + std::to_string(rank) + " dimensions, more than " + std::to_string(kMaxGgufRank));
    for (uint32_t i = 0; i < rank; ++i) {
      const auto size = bytes_.number<uint64_t>();
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(who + "a dimension of " + std::to_string(size));
      entry.shape.insert(entry.shape.begin(), static_cast<int64_t>(size));
    }
    entry.dtype = read_type(who);
    const Block block = block_of(entry.dtype);
    if (block.elements > 1 && (entry.shape.empty() || entry.shape.back() % block.elements != 0))
      fail(who + "rows are not whole blocks of " + std::to_string(block.elements));
    const auto bytes = byte_count(entry.shape, entry.dtype);
    if (!bytes) fail(who + "shape overflows: its product does not fit into 63 bits");
    entry.bytes = *bytes;
    entry.offset = bytes_.number<uint64_t>();  // counted from the start of the data; place_data() makes it absolute
    reshape(entry, who);
    list_.entries.push_back(std::move(entry));
  }

  Dtype read_type(const std::string& who) {
    const auto number = bytes_.number<uint32_t>();
    const auto* found = std::ranges::find(kGgufTypes, number, &GgufType::number);
    if (found == std::end(kGgufTypes)) fail(who + "type " + std::to_string(number) + " is unknown");
    if (!found->dtype)
      throw bad_file(path_, who + "is stored as " + std::string(found->name) + ", which is not supported",
                     "use a variant of the model in one of " + readable_types());
    return *found->dtype;
  }

  void reshape(TensorEntry& entry, const std::string& who) {
    const auto found = shapes_.find(entry.name);
    if (found == shapes_.end()) return;
    if (byte_count(found->second, Dtype::u8) != byte_count(entry.shape, Dtype::u8))
      fail(who + std::string(kShapeKey) + " gives a shape of another size");
    entry.shape = found->second;
  }

  /// Restores the five dimensions of a 3-D convolution's weight. ggml has at most four dimensions, so its files fold
  /// outputs and inputs into one. The length of the bias is the number of outputs.
  void unfold(TensorEntry& entry) const {
    constexpr std::string_view kWeight = ".weight";
    if (entry.shape.size() != 4 || !entry.name.ends_with(kWeight) || shapes_.contains(entry.name)) return;
    const std::string bias = entry.name.substr(0, entry.name.size() - kWeight.size()) + ".bias";
    const auto found = std::ranges::lower_bound(list_.entries, bias, {}, &TensorEntry::name);
    if (found == list_.entries.end() || found->name != bias || found->shape.size() != 1) return;
    const int64_t outputs = found->shape[0], folded = entry.shape[0];
    if (outputs == 0 || folded == outputs || folded % outputs != 0) return;
    entry.shape[0] = folded / outputs;
    entry.shape.insert(entry.shape.begin(), outputs);
  }

  /// Makes offsets absolute, and checks them. In the file they count from the first aligned byte after the list of
  /// tensors.
  void place_data() {
    const uint64_t start = (bytes_.place() + alignment_ - 1) / alignment_ * alignment_;
    std::vector<TensorEntry*> ordered;
    ordered.reserve(list_.entries.size());
    for (TensorEntry& entry : list_.entries) {
      const std::string who = "tensor " + in_quotes(entry.name) + ": ";
      if (entry.offset % alignment_ != 0)
        fail(who + "its offset " + std::to_string(entry.offset) + " is not a multiple of " +
             std::to_string(alignment_));
      // This is 0 if the file ends with the list; then only empty tensors fit.
      const uint64_t data_bytes = file_.size() - std::min<uint64_t>(start, file_.size());
      if (entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset)
        fail("truncated: " + who + std::to_string(entry.bytes) + " bytes at " + std::to_string(entry.offset) +
             " do not fit into " + std::to_string(data_bytes) + " bytes of data");
      entry.offset = std::min<uint64_t>(start, file_.size()) + entry.offset;
      ordered.push_back(&entry);
    }
    std::ranges::sort(ordered, {}, [](const TensorEntry* entry) { return std::pair(entry->offset, entry->bytes); });
    for (size_t i = 1; i < ordered.size(); ++i)
      if (ordered[i]->offset < ordered[i - 1]->offset + ordered[i - 1]->bytes)
        fail("tensor " + in_quotes(ordered[i]->name) + " overlaps " + in_quotes(ordered[i - 1]->name));
  }

  std::span<const std::byte> file_;
  std::string path_;
  ByteReader bytes_;
  TensorList list_;
  std::set<std::string> keys_, names_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

bool is_gguf(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

TensorList parse_gguf(std::span<const std::byte> file, const std::string& path) {
  return GgufReader(file, path).read();
}

}  // namespace sparsereel::models
