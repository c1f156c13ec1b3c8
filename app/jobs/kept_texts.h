// Encoded texts that stay in memory from job to job, so that the text encoder need not be loaded again for them.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "models/request/conditioning.h"

namespace sparsereel::app {

/// Keeps the most recently used texts. All of them belong to one pipeline. Not thread-safe.
class KeptTexts {
 public:
  struct Text {
    std::string key;                    // models::text_key() of the plan
    models::Conditioning conditioning;  // on the CPU, without images
    std::vector<std::string> warnings;
  };

  explicit KeptTexts(uint64_t most_bytes = uint64_t{256} << 20) : most_bytes_(most_bytes) {}

  bool has(const std::string& key) const;
  /// Finds a text and marks it as used. Returns null if it is not kept.
  const Text* find(const std::string& key);
  void keep(Text text);  // does nothing if the text alone is too large
  void clear() { texts_.clear(); }

 private:
  uint64_t most_bytes_;
  std::list<Text> texts_;  // most recently used first
};

}  // namespace sparsereel::app
