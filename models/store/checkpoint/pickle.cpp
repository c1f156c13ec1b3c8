// Interprets the pickle operations that torch.save() writes (Python's pickletools.py documents each).
#include "models/store/checkpoint/pickle.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "hilbert/error.h"
#include "models/files/byte_reader.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using Kind = PickleItem::Kind;

constexpr const char* kPickleRemedy =
    "load it with torch.load(path, weights_only=True), and save the tensors with safetensors.torch.save_file()";
constexpr size_t kStorageFields = 5;
constexpr size_t kMaxGlobal = 256;  // longest name of a global, in bytes
constexpr size_t kMostCopied = 4;   // limit of copied items, per byte of the pickle

/// The effect of calling a global.
enum class CallEffect {
  none,        // refuses the pickle: this global may be named, as a storage's class or a dtype, but not called
  tensor,      // returns a tensor, which the arguments describe
  first,       // returns the first argument, such as the tensor that a parameter wraps
  function,    // calls the first argument with the third and returns the result: a tensor with attributes
  tuple,       // returns the argument, which must be a tuple
  dictionary,  // returns a dictionary of the pairs in the argument; empty without an argument
  other,       // returns a value that tensors do not need
};

struct Global {
  std::string_view name;
  CallEffect call = CallEffect::none;
  size_t least_arguments = 0;
};
constexpr Global kGlobals[] = {
    {"torch._utils._rebuild_tensor_v2", CallEffect::tensor, 6},
    {"torch._utils._rebuild_tensor_v3", CallEffect::tensor, 7},
    {"torch._utils._rebuild_parameter", CallEffect::first, 1},
    {"torch._utils._rebuild_parameter_with_state", CallEffect::first, 1},
    {"torch._tensor._rebuild_from_type_v2", CallEffect::function, 3},
    {"torch._utils._rebuild_sparse_tensor", CallEffect::other},
    {"torch._utils._rebuild_qtensor", CallEffect::other},
    {"torch.nn.parameter.Parameter", CallEffect::first, 1},
    {"torch.Tensor"},
    {"torch.Size", CallEffect::tuple, 1},
    {"torch.device", CallEffect::other},
    {"torch.serialization._get_layout", CallEffect::other},
    {"collections.OrderedDict", CallEffect::dictionary},
    {"collections.Counter", CallEffect::other},
    {"_codecs.encode", CallEffect::other},
    {"__builtin__.bytearray", CallEffect::other},
    {"__builtin__.set", CallEffect::other},
    {"__builtin__.complex", CallEffect::other},
};

/// Returns true for names such as torch.FloatStorage, torch.storage.UntypedStorage and torch.float32. torch_zip.cpp
/// decides which of them weights may have.
bool is_storage_or_dtype(std::string_view name) {
  if (name == "torch.storage.UntypedStorage" || name == "torch.storage.TypedStorage") return true;
  constexpr std::string_view kTorch = "torch.";
  if (!name.starts_with(kTorch)) return false;
  name.remove_prefix(kTorch.size());
  if (name.ends_with("Storage")) return name.find('.') == std::string_view::npos;
  constexpr std::string_view kDtypes[] = {"float", "bfloat", "int", "uint", "bool", "complex", "qint", "quint"};
  return std::ranges::any_of(kDtypes, [&](std::string_view dtype) {
    return name.starts_with(dtype) && std::ranges::all_of(name, [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
           });
  });
}

enum Operation : uint8_t {
  kMark = '(',
  kStop = '.',
  kInt4 = 'J',
  kInt1 = 'K',
  kInt2 = 'M',
  kNone = 'N',
  kFloat8 = 'G',
  kPersistent = 'Q',
  kReduce = 'R',
  kText1 = 'U',
  kText4 = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kGet1 = 'h',
  kGet4 = 'j',
  kPut1 = 'q',
  kPut4 = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDictionary = '}',
  kProtocol = 0x80,
  kNewObject = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8A
};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& source)
      : source_(source), bytes_(bytes, source, kPickleRemedy), size_(bytes.size()) {}

  Pickle run() {
    for (;;) {
      const auto operation = bytes_.number<uint8_t>();
      if (operation == kStop) break;
      if (!data(operation) && !containers(operation) && !memory(operation)) refuse(operation);
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw bad_file(source_, what, kPickleRemedy); }
  [[noreturn]] void refuse(uint8_t operation) const {
    std::ostringstream text;
    text << "has the pickle operation 0x" << std::hex << std::setw(2) << std::setfill('0') << int{operation}
         << ", which files of tensors do not need";
    fail(text.str());
  }

  PickleItem* kept(PickleItem item) {
    count(item.items.size());
    pickle_.items.push_back(std::move(item));
    return &pickle_.items.back();
  }

  /// Limits copied items by the pickle's size: a small hostile pickle may copy one long list again and again.
  void count(size_t copied) {
    copied_ += copied;
    if (copied_ > kMostCopied * size_) fail("is a damaged pickle: it repeats a long list");
  }

  void push(PickleItem item) { stack_.push_back(kept(std::move(item))); }
  PickleItem* top() {
    if (stack_.empty()) fail("is a damaged pickle: its stack is empty");
    return stack_.back();
  }
  PickleItem* pop() {
    PickleItem* item = top();
    stack_.pop_back();
    return item;
  }
  const PickleItem* pop_value() {
    const PickleItem* item = pop();
    if (item->kind == Kind::mark) fail("is a damaged pickle: a mark is used as a value");
    return item;
  }
  std::vector<const PickleItem*> pop_values(size_t count) {
    std::vector<const PickleItem*> values(count);
    for (size_t i = count; i-- > 0;) values[i] = pop_value();
    return values;
  }
  std::vector<const PickleItem*> pop_to_mark() {
    const auto mark =
        std::find_if(stack_.rbegin(), stack_.rend(), [](const PickleItem* item) { return item->kind == Kind::mark; });
    if (mark == stack_.rend()) fail("is a damaged pickle: it has no mark");
    std::vector<const PickleItem*> values = pop_values(static_cast<size_t>(mark - stack_.rbegin()));
    pop();
    return values;
  }

  bool data(uint8_t operation) {
    switch (operation) {
      case kProtocol:
        if (const auto protocol = bytes_.number<uint8_t>(); protocol > 2)
          fail("is a pickle of protocol " + std::to_string(protocol) + ", not 2");
        return true;
      case kNone:
        return push({.kind = Kind::none}), true;
      case kTrue:
      case kFalse:
        return push({.kind = Kind::boolean, .number = operation == kTrue}), true;
      case kInt1:
        return push({.kind = Kind::integer, .number = bytes_.number<uint8_t>()}), true;
      case kInt2:
        return push({.kind = Kind::integer, .number = bytes_.number<uint16_t>()}), true;
      case kInt4:
        return push({.kind = Kind::integer, .number = bytes_.number<int32_t>()}), true;
      case kLong1:
        return push(long_integer()), true;
      case kFloat8:
        return bytes_.take(sizeof(double)), push({.kind = Kind::other}), true;
      case kText1:
        return push({.kind = Kind::text, .text = std::string(bytes_.text(bytes_.number<uint8_t>()))}), true;
      case kText4:
        return push({.kind = Kind::text, .text = std::string(bytes_.text(bytes_.number<uint32_t>()))}), true;
      case kGlobal:
        return push({.kind = Kind::global, .text = global()}), true;
      default:
        return false;
    }
  }

  /// Reads an integer in two's complement. If it has more than eight bytes, it cannot be a size of a tensor, so the
  /// result is `other`.
  PickleItem long_integer() {
    const auto size = bytes_.number<uint8_t>();
    const std::span<const std::byte> digits = bytes_.take(size);
    if (size > sizeof(int64_t)) return {.kind = Kind::other};
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(digits[i]) << 8 * i;
    const bool negative = size > 0 && (digits.back() & std::byte{0x80}) != std::byte{0};
    if (negative && size < sizeof value) value |= ~uint64_t{0} << 8 * size;
    return {.kind = Kind::integer, .number = static_cast<int64_t>(value)};
  }

  std::string line() {
    std::string text;
    for (char c = bytes_.number<char>(); c != '\n'; c = bytes_.number<char>()) {
      if (text.size() == kMaxGlobal) fail("contains a name of more than " + std::to_string(kMaxGlobal) + " bytes");
      text += c;
    }
    return text;
  }

  std::string global() {
    std::string name = line();
    name += "." + line();
    if (std::ranges::find(kGlobals, name, &Global::name) == std::end(kGlobals) && !is_storage_or_dtype(name))
      fail("asks for " + in_quotes(name) + ", which files of tensors do not need");
    return name;
  }

  bool containers(uint8_t operation) {
    switch (operation) {
      case kMark:
        return push({.kind = Kind::mark}), true;
      case kEmptyTuple:
        return push({.kind = Kind::tuple}), true;
      case kEmptyList:
        return push({.kind = Kind::list}), true;
      case kEmptyDictionary:
        return push({.kind = Kind::dictionary}), true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return push_tuple(pop_values(operation - kTuple1 + 1)), true;
      case kTuple:
        return push_tuple(pop_to_mark()), true;
      case kAppend:
        return extend(pop_values(1), Kind::list), true;
      case kAppends:
        return extend(pop_to_mark(), Kind::list), true;
      case kSetItem:
        return extend(pop_values(2), Kind::dictionary), true;
      case kSetItems:
        return extend(pop_to_mark(), Kind::dictionary), true;
      case kBuild:
        // Drops attributes that are set on an OrderedDict (_metadata): they hold no tensor.
        pop_value();
        if (top()->kind != Kind::dictionary && top()->kind != Kind::other)
          fail("sets attributes of something that is not a dictionary");
        return true;
      case kReduce:
      case kNewObject:
        return reduce(), true;
      case kPersistent:
        return persistent(), true;
      default:
        return false;
    }
  }

  void push_tuple(std::vector<const PickleItem*> values) { push({.kind = Kind::tuple, .items = std::move(values)}); }

  void extend(const std::vector<const PickleItem*>& values, Kind kind) {
    PickleItem* container = top();
    if (container->kind != kind || (kind == Kind::dictionary && values.size() % 2 != 0))
      fail("is a damaged pickle: it adds to something that is not a " +
           std::string(kind == Kind::list ? "list" : "dictionary"));
    container->items.insert(container->items.end(), values.begin(), values.end());
  }

  /// Replaces a function call, or the construction of an object, by the known result. Nothing is called.
  void reduce() {
    const PickleItem* arguments = pop_value();
    const PickleItem* function = pop_value();
    if (function->kind != Kind::global || arguments->kind != Kind::tuple)
      fail("calls something that is not a function of torch");
    stack_.push_back(called(function->text, arguments->items));
  }

  PickleItem* called(const std::string& name, const std::vector<const PickleItem*>& arguments, bool within = false) {
    const auto* global = std::ranges::find(kGlobals, name, &Global::name);
    if (global != std::end(kGlobals) && arguments.size() >= global->least_arguments) {
      switch (global->call) {
        case CallEffect::none:
          break;
        case CallEffect::tensor:
          return kept({.kind = Kind::tensor, .items = arguments});
        case CallEffect::first:
          return kept(arguments[0]->kind == Kind::tensor ? *arguments[0] : PickleItem{.kind = Kind::other});
        case CallEffect::function:
          if (within || arguments[0]->kind != Kind::global || arguments[2]->kind != Kind::tuple) break;
          return called(arguments[0]->text, arguments[2]->items, /*within=*/true);
        case CallEffect::tuple:
          return kept({.kind = Kind::tuple, .items = arguments[0]->items});
        case CallEffect::dictionary:
          return dictionary_of(arguments);
        case CallEffect::other:
          return kept({.kind = Kind::other});
      }
    }
    fail("calls " + in_quotes(name) + ", which files of tensors do not need");
  }

  /// Makes a dictionary from the pairs (tuples or lists) in the first argument.
  PickleItem* dictionary_of(const std::vector<const PickleItem*>& arguments) {
    PickleItem* dictionary = kept({.kind = Kind::dictionary});
    if (arguments.empty()) return dictionary;
    for (const PickleItem* pair : arguments[0]->items) {
      if (pair->items.size() != 2) fail("makes a dictionary from something that is not a list of pairs");
      dictionary->items.insert(dictionary->items.end(), pair->items.begin(), pair->items.end());
    }
    count(dictionary->items.size());
    return dictionary;
  }

  void persistent() {
    const PickleItem* id = pop_value();
    if (id->kind != Kind::tuple || id->items.size() != kStorageFields)
      fail("has a persistent id that is not a storage");
    push({.kind = Kind::storage, .items = id->items});
  }

  bool memory(uint8_t operation) {
    switch (operation) {
      case kPut1:
        memory_[bytes_.number<uint8_t>()] = top();
        return true;
      case kPut4:
        memory_[bytes_.number<uint32_t>()] = top();
        return true;
      case kGet1:
        return recall(bytes_.number<uint8_t>()), true;
      case kGet4:
        return recall(bytes_.number<uint32_t>()), true;
      default:
        return false;
    }
  }

  void recall(uint32_t place) {
    const auto found = memory_.find(place);
    if (found == memory_.end() || found->second->kind == Kind::mark)
      fail("is a damaged pickle: it reads a memo entry that it never wrote");
    stack_.push_back(found->second);
  }

  std::string source_;
  ByteReader bytes_;
  size_t size_, copied_ = 0;
  Pickle pickle_;
  std::vector<PickleItem*> stack_;
  std::map<uint32_t, PickleItem*> memory_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source) {
  return Machine(bytes, source).run();
}

}  // namespace sparsereel::models
