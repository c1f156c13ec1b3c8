// Reads the pickles of torch.save(). It builds plain data and never calls anything. No torch.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace sparsereel::models {

/// A value of a pickle. Items refer to others by pointers into the list of Pickle, because a dictionary may contain
/// itself.
struct PickleItem {
  /// `other` is a value that tensors do not need, such as a float, a set or a sparse tensor.
  enum class Kind { none, boolean, integer, text, global, tuple, list, dictionary, storage, tensor, other, mark };
  Kind kind = Kind::none;
  int64_t number = 0;
  std::string text = {};  // for a global "module.name"
  /// Dictionary: each key, followed by its value. Tensor: storage, offset, shape, strides, and two unused items, then
  /// its dtype if the storage has none. Storage: "storage", its class, its key, a device, its number of elements.
  std::vector<const PickleItem*> items = {};
};

struct Pickle {
  std::deque<PickleItem> items;
  const PickleItem* root = nullptr;
};

/// Reads a pickle of torch.save(), protocol 2. It may name the globals that torch.load(weights_only=True) accepts:
/// tensors, parameters, storages, dtypes, OrderedDict, and a few more. Throws Error naming `source` and what is not
/// allowed.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source);

}  // namespace sparsereel::models
