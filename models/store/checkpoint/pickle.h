// Reads the pickles of torch.save(). It builds plain data and never calls anything. No torch.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A value of a pickle. Items refer to other items by pointers into Pickle::items, because a dictionary may contain
/// itself.
struct PickleItem {
  /// `other` is any value that tensors do not need, such as a float, a set or a sparse tensor. `mark` is a pickle's
  /// mark on the stack.
  enum class Kind { none, boolean, integer, text, global, tuple, list, dictionary, storage, tensor, other, mark };
  Kind kind = Kind::none;
  int64_t number = 0;
  std::string text = {};  // the text; for a global, "module.name"
  /// A dictionary's items are a key, its value, the next key, and so on. A tensor's items are storage, offset, shape,
  /// strides, two unused items, and the dtype if the storage has none. A storage's items are "storage", its class, its
  /// key, a device, and its number of elements.
  std::vector<const PickleItem*> items = {};
};

struct Pickle {
  std::deque<PickleItem> items;
  const PickleItem* root = nullptr;
};

/// Reads a pickle of torch.save(), protocol 2. It may name the globals that torch.load(weights_only=True) accepts:
/// tensors, parameters, storages, dtypes, OrderedDict, and a few more. Throws Error naming `source` if the pickle is
/// damaged or names anything else.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source);

}  // namespace sparsereel::models
