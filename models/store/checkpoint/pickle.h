// Reads the pickles of torch.save(): builds plain data and never calls anything. No torch.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace sparsereel::models {

/// What a pickle is made of. Whatever refers to others points into the machine's own list: a dictionary may hold
/// itself.
struct PickleItem {
  /// `other`: a value that tensors do not need, such as a float, a set or a sparse tensor.
  enum class Kind { none, boolean, integer, text, global, tuple, list, dictionary, storage, tensor, other, mark };
  Kind kind = Kind::none;
  int64_t number = 0;
  std::string text = {};                      // of a global "module.name"
  std::vector<const PickleItem*> items = {};  // a dictionary's keys and values take turns. Of a tensor: storage,
                                              // offset, shape, strides, and two more, then its dtype where the storage
                                              // has none; of a storage: "storage", its class, its key, a device, its
                                              // elements
};

struct Pickle {
  std::deque<PickleItem> items;
  const PickleItem* root = nullptr;
};

/// Reads a pickle of torch.save(), protocol 2. It may name what torch.load(weights_only=True) takes: tensors,
/// parameters, storages, dtypes, OrderedDict, and a few values beside them. Throws Error naming `source` and what is
/// not allowed.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source);

}  // namespace sparsereel::models
