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
  enum class Kind { none, boolean, integer, text, global, tuple, list, dictionary, storage, tensor, mark };
  Kind kind = Kind::none;
  int64_t number = 0;
  std::string text = {};                      // of a global "module.name"
  std::vector<const PickleItem*> items = {};  // a dictionary's keys and values take turns. Of a tensor: storage,
                                              // offset, shape, strides, and two more; of a storage: "storage", its
                                              // class, its key, a device, its elements
};

struct Pickle {
  std::deque<PickleItem> items;
  const PickleItem* root = nullptr;
};

/// Of torch.save()'s protocol 2. Globals that it may name: torch._utils._rebuild_tensor_v2, collections.OrderedDict,
/// torch.FloatStorage, torch.HalfStorage and torch.BFloat16Storage. Throws Error naming `source` and what is not
/// allowed.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& source);

}  // namespace sparsereel::models
