// Reads the directory of a zip, and builds tensors from the pickle's data.
#include "models/store/checkpoint/torch_zip.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "hilbert/error.h"
#include "models/files/byte_reader.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/pickle.h"

namespace sparsereel::models {
namespace {

constexpr const char* kZipRemedy = "download the file again; it is incomplete or damaged";
constexpr const char* kSaveAgain =
    "load it with torch.load(path, weights_only=True), and save the tensors with safetensors.torch.save_file()";
constexpr uint32_t kLocalMark = 0x04034B50, kEntryMark = 0x02014B50, kEndMark = 0x06054B50, kEnd64Mark = 0x06064B50,
                   kLocator64Mark = 0x07064B50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr size_t kMaxComment = 0xFFFF;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // stands in a 32-bit field if the number is in the zip64 field instead
constexpr size_t kMostBeside = 64;      // largest dictionary that is searched for a dictionary of tensors
constexpr uint64_t kMaxPickle = 4 << 20, kMaxStorages = 1 << 20;

struct Extent {
  uint64_t offset = 0, bytes = 0;
};

/// The central directory of a zip, which lists the place of every entry.
class Zip {
 public:
  Zip(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
    const size_t end = find_end();
    uint64_t count = number_at<uint16_t>(end + 10), bytes = number_at<uint32_t>(end + 12),
             offset = number_at<uint32_t>(end + 16);
    if (end >= kLocatorBytes && number_at<uint32_t>(end - kLocatorBytes) == kLocator64Mark) {
      const auto end64 = number_at<uint64_t>(end - kLocatorBytes + 8);
      if (end64 > file.size() || file.size() - end64 < kEnd64Bytes || number_at<uint32_t>(end64) != kEnd64Mark)
        fail("the end of its zip64 directory is not where it should be");
      count = number_at<uint64_t>(end64 + 32);
      bytes = number_at<uint64_t>(end64 + 40);
      offset = number_at<uint64_t>(end64 + 48);
    }
    if (offset > end || bytes > end - offset) fail("truncated: its zip directory lies outside the file");
    if (count > bytes / kEntryBytes || count > kMaxStorages)
      fail("its zip directory names " + std::to_string(count) + " entries");
    ByteReader directory(file.subspan(offset, bytes), path + ": zip directory", kZipRemedy);
    for (uint64_t i = 0; i < count; ++i) read_entry(directory);
  }

  const std::map<std::string, Extent>& entries() const { return entries_; }

  std::span<const std::byte> data(const Extent& extent) const { return file_.subspan(extent.offset, extent.bytes); }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw bad_file(path_, what, kZipRemedy); }

  template <typename Number>
  Number number_at(uint64_t place) const {
    return ByteReader(file_.subspan(place), path_, kZipRemedy).number<Number>();
  }

  size_t find_end() const {
    for (size_t comment = 0; comment <= kMaxComment && file_.size() >= kEndBytes + comment; ++comment) {
      const size_t place = file_.size() - kEndBytes - comment;
      if (number_at<uint32_t>(place) == kEndMark && number_at<uint16_t>(place + 20) == comment) return place;
    }
    fail("truncated: a zip without a directory at its end");
  }

  void read_entry(ByteReader& directory) {
    ByteReader fields(directory.take(kEntryBytes), path_, kZipRemedy);
    if (fields.number<uint32_t>() != kEntryMark) fail("its zip directory is damaged");
    fields.take(4);  // versions
    const auto flags = fields.number<uint16_t>(), method = fields.number<uint16_t>();
    fields.take(8);  // time, checksum
    uint64_t stored = fields.number<uint32_t>(), bytes = fields.number<uint32_t>();
    const auto name_bytes = fields.number<uint16_t>(), extra_bytes = fields.number<uint16_t>(),
               comment_bytes = fields.number<uint16_t>();
    fields.take(8);  // disk, attributes
    uint64_t local = fields.number<uint32_t>();
    const std::string name(directory.text(name_bytes));
    ByteReader extra(directory.take(extra_bytes), path_ + ": zip entry " + in_quotes(name), kZipRemedy);
    directory.take(comment_bytes);
    while (extra.left() >= 4) {
      const auto id = extra.number<uint16_t>(), size = extra.number<uint16_t>();
      ByteReader wide(extra.take(size), path_ + ": zip entry " + in_quotes(name), kZipRemedy);
      if (id != 1) continue;
      for (uint64_t* number : {&bytes, &stored, &local})
        if (*number == kIn64) *number = wide.number<uint64_t>();
    }
    if (method != 0 || (flags & 1) != 0 || stored != bytes)
      throw bad_file(path_,
                     "zip entry " + in_quotes(name) + " is compressed or encrypted, which torch.save() never does",
                     kSaveAgain);
    if (!entries_.emplace(name, extent_of(name, local, bytes)).second)
      fail("zip entry " + in_quotes(name) + " appears twice");
  }

  /// Returns the place of an entry's data. It follows a local header, which has lengths of its own for name and
  /// padding.
  Extent extent_of(const std::string& name, uint64_t local, uint64_t bytes) const {
    const std::string who = "zip entry " + in_quotes(name);
    if (local > file_.size() || file_.size() - local < kLocalBytes || number_at<uint32_t>(local) != kLocalMark)
      fail(who + " is not where the directory says");
    const uint64_t offset = local + kLocalBytes + number_at<uint16_t>(local + 26) + number_at<uint16_t>(local + 28);
    if (offset > file_.size() || bytes > file_.size() - offset) fail("truncated: " + who + " ends beyond the file");
    return {offset, bytes};
  }

  std::span<const std::byte> file_;
  std::string path_;
  std::map<std::string, Extent> entries_;
};

using ItemKind = PickleItem::Kind;

/// Makes entries from the pickle's tensors.
class TorchReader {
 public:
  TorchReader(std::span<const std::byte> file, const std::string& path) : path_(path), zip_(file, path) {}

  TensorList read() {
    const Extent pickle = find_pickle();
    check_byte_order();
    const Pickle data = read_pickle(zip_.data(pickle), path_ + ": data.pkl");
    const PickleItem* tensors = dictionary_of_tensors(data.root);
    for (size_t i = 0; i < tensors->items.size(); i += 2) {
      const PickleItem *key = tensors->items[i], *value = tensors->items[i + 1];
      if (value->kind != ItemKind::tensor) continue;  // for example, a number of steps
      const std::string name = name_of(key);
      if (const auto dtype = dtype_of(*value, "tensor " + in_quotes(name) + ": "))
        list_.entries.push_back(entry(name, *value, *dtype));
    }
    std::ranges::sort(list_.entries, {}, &TensorEntry::name);
    return std::move(list_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw bad_file(path_, what, kSaveAgain); }

  /// Finds "NAME/data.pkl", for any NAME of the archive.
  Extent find_pickle() {
    constexpr std::string_view kName = "data.pkl";
    for (const auto& [name, extent] : zip_.entries()) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos || std::string_view(name).substr(slash + 1) != kName) continue;
      root_ = name.substr(0, slash + 1);
      if (extent.bytes > kMaxPickle) fail("data.pkl has " + std::to_string(extent.bytes) + " bytes, too many");
      return extent;
    }
    fail("is a zip without data.pkl, not a file of torch.save()");
  }

  void check_byte_order() const {
    const auto found = zip_.entries().find(root_ + "byteorder");
    if (found == zip_.entries().end()) return;
    const std::span<const std::byte> text = zip_.data(found->second);
    if (std::string_view(reinterpret_cast<const char*>(text.data()), text.size()) != "little")
      fail("its storages are not little-endian");
  }

  static size_t count_tensors(const PickleItem* item) {
    if (item->kind != ItemKind::dictionary) return 0;
    size_t count = 0;
    for (size_t i = 1; i < item->items.size(); i += 2) count += item->items[i]->kind == ItemKind::tensor ? 1 : 0;
    return count;
  }
  static bool has_tensors(const PickleItem* item) { return count_tensors(item) > 0; }

  /// Returns true if the weights are in the root dictionary. They are not if an inner dictionary has at least as many
  /// tensors: then the tensors in the root are something else, such as a trainer's random state.
  static bool has_most_tensors(const PickleItem* root) {
    const size_t own = count_tensors(root);
    if (own == 0 || root->items.size() > 2 * kMostBeside) return own > 0;
    for (size_t i = 1; i < root->items.size(); i += 2)
      if (count_tensors(root->items[i]) >= own) return false;
    return true;
  }

  /// Returns a dictionary's value for the key `name`; null if `item` is not a dictionary, is too large, or does not
  /// have the key.
  static const PickleItem* entry_of(const PickleItem* item, std::string_view name) {
    if (item == nullptr || item->kind != ItemKind::dictionary || item->items.size() > 2 * kMostBeside) return nullptr;
    for (size_t i = 0; i < item->items.size(); i += 2)
      if (item->items[i]->kind == ItemKind::text && item->items[i]->text == name) return item->items[i + 1];
    return nullptr;
  }

  const PickleItem* dictionary_of_tensors(const PickleItem* root) const {
    if (has_most_tensors(root)) return root;
    // A trainer saves its model together with a discriminator and averages of the weights. The averages are preferred.
    for (const PickleItem* item : {entry_of(root, "ema_state_dict"), entry_of(root, "generator_ema"),
                                   entry_of(root, "model_ema"), entry_of(root, "ema_model"), entry_of(root, "ema"),
                                   entry_of(entry_of(root, "state_dict"), "gen_model"), entry_of(root, "generator")})
      if (item != nullptr && has_tensors(item)) return item;
    std::vector<const PickleItem*> inside;
    if (root->kind == ItemKind::dictionary && root->items.size() <= 2 * kMostBeside)
      for (size_t i = 1; i < root->items.size(); i += 2)
        if (has_tensors(root->items[i])) inside.push_back(root->items[i]);
    if (inside.size() != 1) fail("is neither a dictionary of tensors nor a dictionary that holds exactly one of these");
    return inside[0];
  }

  std::string name_of(const PickleItem* key) {
    if (key->kind != ItemKind::text) fail("a tensor's name is not a text");
    try {
      // dump() throws if the text is not UTF-8. Find that out here, because later calls of dump() expect no exception.
      static_cast<void>(nlohmann::json(key->text).dump());
    } catch (const nlohmann::json::exception&) {
      fail("tensor " + in_quotes(key->text) + ": the name is not UTF-8");
    }
    if (!names_.insert(key->text).second) fail("tensor " + in_quotes(key->text) + " appears twice");
    return key->text;
  }

  int64_t natural(const PickleItem* item, const std::string& who) const {
    if (item->kind != ItemKind::integer || item->number < 0) fail(who + "has a size that is not a natural number");
    return item->number;
  }

  std::vector<int64_t> naturals(const PickleItem* item, const std::string& who) const {
    if (item->kind != ItemKind::tuple || item->items.size() > kMaxTorchRank) fail(who + "has an invalid shape");
    std::vector<int64_t> numbers;
    for (const PickleItem* each : item->items) numbers.push_back(natural(each, who));
    return numbers;
  }

  TensorEntry entry(std::string name, const PickleItem& tensor, Dtype dtype) const {
    const std::string who = "tensor " + in_quotes(name) + ": ";
    TensorEntry entry;
    entry.name = std::move(name);
    entry.dtype = dtype;
    entry.shape = naturals(tensor.items[2], who);
    entry.strides = naturals(tensor.items[3], who);
    if (entry.shape.size() != entry.strides.size()) fail(who + "does not have as many strides as dimensions");
    if (!byte_count(entry.shape, entry.dtype)) fail(who + "shape overflows: its product does not fit into 63 bits");
    if (is_contiguous(entry)) entry.strides.clear();
    const auto bytes = covered_bytes(entry);
    if (!bytes) fail(who + "its strides overflow");
    const Extent storage = storage_of(*tensor.items[0], who, dtype);
    const auto first = static_cast<uint64_t>(natural(tensor.items[1], who));
    const uint64_t size = size_of(entry.dtype);
    if (first > storage.bytes / size || *bytes > storage.bytes - first * size)
      fail(who + "reaches beyond its storage of " + std::to_string(storage.bytes) + " bytes");
    entry.offset = storage.offset + first * size;
    entry.bytes = *bytes;
    return entry;
  }

  /// Returns true if the elements are contiguous. The stride of a dimension of size one does not matter.
  static bool is_contiguous(const TensorEntry& entry) {
    if (entry.elements() == 0) return true;
    int64_t expected = 1;
    for (size_t i = entry.shape.size(); i-- > 0;) {
      if (entry.shape[i] != 1 && entry.strides[i] != expected) return false;
      expected *= entry.shape[i];
    }
    return true;
  }

  /// Returns nullopt for dtypes that weights do not have, such as complex numbers.
  std::optional<Dtype> dtype_of(const PickleItem& tensor, const std::string& who) const {
    const PickleItem& storage = *tensor.items[0];
    if (storage.kind != ItemKind::storage) fail(who + "its data is missing (no torch storage)");
    const auto& items = storage.items;
    const bool is_one = items[0]->kind == ItemKind::text && items[0]->text == "storage" &&
                        items[1]->kind == ItemKind::global && items[2]->kind == ItemKind::text;
    if (!is_one) fail(who + "has a persistent id that is not a storage");
    const bool is_untyped = items[1]->text == kUntyped;
    if (!is_untyped && !items[1]->text.ends_with("Storage"))
      fail(who + in_quotes(items[1]->text) + " is not a storage");
    if (is_untyped && (tensor.items.size() <= kDtypePlace || tensor.items[kDtypePlace]->kind != ItemKind::global))
      fail(who + "has no dtype");
    const std::string& name = is_untyped ? tensor.items[kDtypePlace]->text : items[1]->text;
    const auto* found = std::ranges::find_if(
        kStorages, [&](const StorageType& type) { return name == (is_untyped ? type.dtype_name : type.storage); });
    return found == std::end(kStorages) ? std::nullopt : std::optional(found->dtype);
  }

  Extent storage_of(const PickleItem& storage, const std::string& who, Dtype dtype) const {
    const std::string &kind = storage.items[1]->text, &key = storage.items[2]->text;
    const bool plain = !key.empty() && std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
    const auto found = plain ? zip_.entries().find(root_ + "data/" + key) : zip_.entries().end();
    if (found == zip_.entries().end()) fail(who + "its storage " + in_quotes(key) + " is not in the file");
    const int64_t count = natural(storage.items[4], who);
    const auto bytes = byte_count({count}, kind == kUntyped ? Dtype::u8 : dtype);
    if (!bytes || *bytes > found->second.bytes)
      fail(who + "its storage " + in_quotes(key) + " has " + std::to_string(found->second.bytes) +
           " bytes, too few for " + std::to_string(count) + " elements");
    return {found->second.offset, *bytes};
  }

  /// A dtype of weights, and torch's names for it: the class of a typed storage, and the dtype that a tensor with an
  /// untyped storage names.
  struct StorageType {
    std::string_view storage, dtype_name;
    Dtype dtype;
  };
  static constexpr StorageType kStorages[] = {{"torch.FloatStorage", "torch.float32", Dtype::f32},
                                              {"torch.HalfStorage", "torch.float16", Dtype::f16},
                                              {"torch.BFloat16Storage", "torch.bfloat16", Dtype::bf16},
                                              {"torch.DoubleStorage", "torch.float64", Dtype::f64},
                                              {"torch.LongStorage", "torch.int64", Dtype::i64},
                                              {"torch.IntStorage", "torch.int32", Dtype::i32},
                                              {"torch.ShortStorage", "torch.int16", Dtype::i16},
                                              {"torch.CharStorage", "torch.int8", Dtype::i8},
                                              {"torch.ByteStorage", "torch.uint8", Dtype::u8},
                                              {"torch.BoolStorage", "torch.bool", Dtype::boolean},
                                              {"", "torch.float8_e4m3fn", Dtype::f8_e4m3},
                                              {"", "torch.float8_e5m2", Dtype::f8_e5m2}};
  static constexpr const char* kUntyped = "torch.storage.UntypedStorage";
  static constexpr size_t kDtypePlace = 6;  // index in a tensor's items
  static constexpr size_t kMaxTorchRank = 64;

  std::string path_, root_;
  Zip zip_;
  TensorList list_;
  std::set<std::string> names_;
};

}  // namespace

bool is_zip(std::span<const std::byte> file) {
  return file.size() >= sizeof kLocalMark && std::memcmp(file.data(), &kLocalMark, sizeof kLocalMark) == 0;
}

TensorList parse_torch_zip(std::span<const std::byte> file, const std::string& path) {
  return TorchReader(file, path).read();
}

}  // namespace sparsereel::models
