// A pickle machine of the operations that torch.save() writes (Python's pickletools.py says what each does).
#include "models/checkpoint/pickle.h"

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
constexpr const char* kRebuild = "torch._utils._rebuild_tensor_v2";
constexpr const char* kDictionary = "collections.OrderedDict";
constexpr std::string_view kGlobals[] = {kRebuild, kDictionary, "torch.FloatStorage", "torch.HalfStorage",
                                         "torch.BFloat16Storage"};
constexpr size_t kTensorArguments = 6, kStorageFields = 5;
constexpr size_t kMaxGlobal = 256;  // bytes of a global's name

enum Operation : uint8_t {
  kMark = '(',
  kStop = '.',
  kInt4 = 'J',
  kInt1 = 'K',
  kInt2 = 'M',
  kNone = 'N',
  kPersistent = 'Q',
  kReduce = 'R',
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
      : source_(source), bytes_(bytes, source, kPickleRemedy) {}

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

  PickleItem& push(PickleItem item) {
    pickle_.items.push_back(std::move(item));
    stack_.push_back(&pickle_.items.back());
    return pickle_.items.back();
  }
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
    if (item->kind == Kind::mark) fail("is a damaged pickle: a mark stands for a value");
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
        return push({.kind = Kind::integer, .number = long_integer()}), true;
      case kText4:
        return push({.kind = Kind::text, .text = std::string(bytes_.text(bytes_.number<uint32_t>()))}), true;
      case kGlobal:
        return push({.kind = Kind::global, .text = global()}), true;
      default:
        return false;
    }
  }

  /// Two's complement in as few bytes as it needs.
  int64_t long_integer() {
    const auto size = bytes_.number<uint8_t>();
    if (size > sizeof(int64_t)) fail("has an integer of " + std::to_string(size) + " bytes");
    const std::span<const std::byte> digits = bytes_.take(size);
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(digits[i]) << 8 * i;
    const bool negative = size > 0 && (digits.back() & std::byte{0x80}) != std::byte{0};
    if (negative && size < sizeof value) value |= ~uint64_t{0} << 8 * size;
    return static_cast<int64_t>(value);
  }

  std::string line() {
    std::string text;
    for (char c = bytes_.number<char>(); c != '\n'; c = bytes_.number<char>()) {
      if (text.size() == kMaxGlobal) fail("names something of more than " + std::to_string(kMaxGlobal) + " bytes");
      text += c;
    }
    return text;
  }

  std::string global() {
    std::string name = line();
    name += "." + line();
    if (std::ranges::find(kGlobals, name) == std::end(kGlobals))
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
        // Attributes of an OrderedDict, _metadata: no tensor is among them.
        pop_value();
        if (top()->kind != Kind::dictionary) fail("sets attributes of something that is no dictionary");
        return true;
      case kReduce:
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
      fail("is a damaged pickle: it adds to something that is no " +
           std::string(kind == Kind::list ? "list" : "dictionary"));
    container->items.insert(container->items.end(), values.begin(), values.end());
  }

  /// Stands for the call of a function: what it would have made is known.
  void reduce() {
    const PickleItem* arguments = pop_value();
    const PickleItem* function = pop_value();
    if (function->kind != Kind::global || arguments->kind != Kind::tuple)
      fail("calls something that is no function of torch");
    if (function->text == kRebuild && arguments->items.size() == kTensorArguments) {
      push({.kind = Kind::tensor, .items = arguments->items});
    } else if (function->text == kDictionary && arguments->items.empty()) {
      push({.kind = Kind::dictionary});
    } else {
      fail("calls " + in_quotes(function->text) + ", which files of tensors do not need");
    }
  }

  void persistent() {
    const PickleItem* id = pop_value();
    if (id->kind != Kind::tuple || id->items.size() != kStorageFields) fail("has a persistent id that is no storage");
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
      fail("is a damaged pickle: it recalls what it never kept");
    stack_.push_back(found->second);
  }

  std::string source_;
  ByteReader bytes_;
  Pickle pickle_;
  std::vector<PickleItem*> stack_;
  std::map<uint32_t, PickleItem*> memory_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source) {
  return Machine(bytes, source).run();
}

}  // namespace sparsereel::models
