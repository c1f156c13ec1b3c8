// Checks headers of safetensors files, and writes such files.
#include "models/store/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "hilbert/error.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and used as it lies in the file");

constexpr size_t kLengthBytes = 8;                 // a file begins with the header's length, a u64
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's reference implementation
constexpr size_t kMaxRank = 64;                    // libtorch's limit
constexpr const char* kMetadataKey = "__metadata__";
constexpr Dtype kOwnDtypes[] = {Dtype::f64,     Dtype::f32,     Dtype::f16,    Dtype::bf16, Dtype::i64,
                                Dtype::i32,     Dtype::i16,     Dtype::i8,     Dtype::u8,   Dtype::boolean,
                                Dtype::f8_e4m3, Dtype::f8_e5m2, Dtype::f8_e8m0};
constexpr const char* kRemedy = "download or export the file again; it is damaged or not a safetensors file";

/// Reads one entry of the header. Every error names the file and the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& path, const std::string& tensor, const json& fields, uint64_t data_start)
      : path_(path), tensor_("tensor " + in_quotes(tensor)), fields_(fields), data_start_(data_start) {
    entry_.name = tensor;
  }

  TensorEntry read(uint64_t data_bytes) {
    if (!fields_.is_object()) fail("is not described by an object");
    read_dtype();
    read_shape();
    const json& offsets = field("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) fail("data_offsets is not a pair [begin, end]");
    const uint64_t begin = natural(offsets[0], "data_offsets");
    const uint64_t end = natural(offsets[1], "data_offsets");
    const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
    if (begin > end) fail(range + " run backwards");
    if (end > data_bytes)
      fail("truncated: " + range + " end outside of the file, which holds " + std::to_string(data_bytes) +
           " bytes of data");
    const auto expected = byte_count(entry_.shape, entry_.dtype);
    if (!expected) fail("shape overflows: its product does not fit into 63 bits");
    if (end - begin != *expected)
      fail(range + " hold " + std::to_string(end - begin) + " bytes, but dtype and shape need " +
           std::to_string(*expected));
    entry_.offset = data_start_ + begin;
    entry_.bytes = *expected;
    return std::move(entry_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw bad_file(path_, tensor_ + ": " + what, kRemedy); }

  const json& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) fail(std::string("has no ") + key);
    return *found;
  }

  uint64_t natural(const json& value, const char* key) const {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(std::string(key) + " holds " + in_quotes(value.dump(-1, ' ', false, json::error_handler_t::replace)) +
           ", not a whole number from 0 to 2^63 - 1");
    return value.get<uint64_t>();
  }

  void read_dtype() {
    const json& value = field("dtype");
    if (!value.is_string()) fail("dtype is not a string");
    const auto& text = value.get_ref<const std::string&>();
    const auto* found = std::ranges::find(kOwnDtypes, text, [](Dtype dtype) { return models::name(dtype); });
    if (found == std::end(kOwnDtypes)) {
      std::string names;
      for (const Dtype known : kOwnDtypes) names += (names.empty() ? "" : ", ") + std::string(models::name(known));
      throw bad_file(path_, tensor_ + ": dtype " + in_quotes(text) + " is unknown",
                     "store the tensor as one of " + names);
    }
    entry_.dtype = *found;
  }

  void read_shape() {
    const json& value = field("shape");
    if (!value.is_array()) fail("shape is not an array");
    if (value.size() > kMaxRank)
      fail("shape has " + std::to_string(value.size()) + " dimensions, more than " + std::to_string(kMaxRank));
    for (const json& size : value) entry_.shape.push_back(static_cast<int64_t>(natural(size, "shape")));
  }

  std::string path_, tensor_;
  const json& fields_;
  uint64_t data_start_;
  TensorEntry entry_;
};

std::map<std::string, std::string> read_metadata(const json& value, const std::string& path) {
  if (!value.is_object()) throw bad_file(path, "__metadata__ is not an object", kRemedy);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw bad_file(path, "__metadata__ " + in_quotes(key) + " is not a string", kRemedy);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Checks that the tensors cover the data without overlap or hole, as the format demands.
void check_coverage(const std::vector<TensorEntry>& entries, uint64_t data_start, uint64_t file_size,
                    const std::string& path) {
  std::vector<const TensorEntry*> ordered;
  ordered.reserve(entries.size());
  for (const TensorEntry& entry : entries) ordered.push_back(&entry);
  std::sort(ordered.begin(), ordered.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = data_start;
  for (const TensorEntry* entry : ordered) {
    const std::string offsets = "tensor " + in_quotes(entry->name) + ": data_offsets ";
    if (entry->offset < end) throw bad_file(path, offsets + "overlap the tensor before it", kRemedy);
    if (entry->offset > end)
      throw bad_file(path, offsets + "leave a hole of " + std::to_string(entry->offset - end) + " bytes before it",
                     kRemedy);
    end = entry->offset + entry->bytes;
  }
  if (end != file_size)
    throw bad_file(path, std::to_string(file_size - end) + " bytes at its end belong to no tensor", kRemedy);
}

/// Returns the length of the header's JSON in bytes. Checks that the file is that long.
uint64_t header_length(std::span<const std::byte> file, uint64_t file_size, const std::string& path) {
  if (file_size < kLengthBytes || file.size() < kLengthBytes)
    throw bad_file(path, "truncated: " + std::to_string(file_size) + " bytes are too few for the header's length",
                   kRemedy);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    throw bad_file(path,
                   "header length " + std::to_string(length) + " exceeds the format's limit of " +
                       std::to_string(kMaxHeaderBytes) + " bytes",
                   kRemedy);
  if (length > file_size - kLengthBytes || length > file.size() - kLengthBytes)
    throw bad_file(path,
                   "truncated: header length " + std::to_string(length) + " exceeds the " +
                       std::to_string(file_size - kLengthBytes) + " bytes that follow",
                   kRemedy);
  return length;
}

/// Orders tensors by falling element size, so that each is aligned to its element size. The format's reference
/// implementation uses the same order.
std::vector<const TensorView*> writing_order(const std::vector<TensorView>& tensors) {
  std::vector<const TensorView*> ordered;
  ordered.reserve(tensors.size());
  for (const TensorView& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(), [](const TensorView* a, const TensorView* b) {
    const size_t a_size = size_of(a->dtype), b_size = size_of(b->dtype);
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  return ordered;
}

json header_entry(Dtype dtype, const std::vector<int64_t>& shape, size_t offset, size_t bytes) {
  return {{"dtype", name(dtype)}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
}

/// Returns the header as text, padded so that the data is aligned.
std::string padded_text(const json& header) {
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

std::string header_text(const std::filesystem::path& path, const std::vector<const TensorView*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  size_t offset = 0;
  for (const TensorView* tensor : tensors) {
    const std::string where = path.string() + ": tensor " + in_quotes(tensor->name) + ": ";
    if (tensor->name == kMetadataKey || header.contains(tensor->name))
      throw bad_input(where + "the name is reserved or given twice", "give every tensor a name of its own");
    if (is_packed(tensor->dtype))
      throw bad_input(where + "a .safetensors file cannot hold " + std::string(name(tensor->dtype)),
                      "convert the tensor to another type, such as BF16");
    const auto bytes = std::any_of(tensor->shape.begin(), tensor->shape.end(), [](int64_t size) { return size < 0; })
                           ? std::nullopt
                           : byte_count(tensor->shape, tensor->dtype);
    if (bytes != tensor->data.size())
      throw bad_input(
          where + "its data has " + std::to_string(tensor->data.size()) + " bytes, which does not fit dtype and shape",
          "pass contiguous data of that shape");
    header[tensor->name] = header_entry(tensor->dtype, tensor->shape, offset, *bytes);
    offset += *bytes;
  }
  return padded_text(header);
}

}  // namespace

TensorList parse_safetensors_header(std::span<const std::byte> file, uint64_t file_size, const std::string& path) {
  const uint64_t length = header_length(file, file_size, path);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const json root = parse_json(text, path + ": header", kRemedy);
  if (!root.is_object()) throw bad_file(path, "header is not a JSON object", kRemedy);
  TensorList header;
  const uint64_t data_start = kLengthBytes + length;
  for (const auto& [key, value] : root.items()) {
    if (key == kMetadataKey) {
      header.metadata = read_metadata(value, path);
    } else {
      header.entries.push_back(EntryReader(path, key, value, data_start).read(file_size - data_start));
    }
  }
  check_coverage(header.entries, data_start, file_size, path);
  return header;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const auto ordered = writing_order(tensors);
  const std::string header = header_text(path, ordered, metadata);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header.data(), header.size());
  for (const TensorView* tensor : ordered) file.write(tensor->data.data(), tensor->data.size());
  file.commit();
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::string& name, Dtype dtype,
                                     const std::vector<int64_t>& shape)
    : file_(path) {
  const auto bytes = byte_count(shape, dtype);
  if (!bytes) throw bad_input(path.string() + ": tensor " + in_quotes(name) + " is too large", "make it smaller");
  const std::string header = padded_text({{name, header_entry(dtype, shape, 0, *bytes)}});
  const uint64_t length = header.size();
  append(std::as_bytes(std::span(&length, 1)));
  append(std::as_bytes(std::span(header)));
}

void SafetensorsWriter::append(std::span<const std::byte> data) {
  file_.write(data.data(), data.size());
  bytes_ += data.size();
}

uint64_t SafetensorsWriter::complete() {
  file_.complete();
  return bytes_;
}

}  // namespace sparsereel::models
