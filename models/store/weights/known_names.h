// Tells which unused tensors of a file belong to a module.
#pragma once

#include <set>
#include <string>

namespace sparsereel::models {

/// Tells the meaning of unexpected names, given the names that the module asked for. A tensor of a layer that the
/// config leaves out, or of one more block, shows that the file belongs to another model. A counter or marker that a
/// trainer left does not.
class KnownNames {
 public:
  explicit KnownNames(const std::set<std::string>& used);

  /// Returns true if a tensor of this name would belong to one of the module's layers or lists of blocks.
  bool has_place_for(const std::string& name) const;

 private:
  std::set<std::string> last_, layers_;
};

}  // namespace sparsereel::models
