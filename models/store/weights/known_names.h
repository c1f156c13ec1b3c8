// Tells whether an unused tensor of a file belongs to a module.
#pragma once

#include <set>
#include <string>

namespace sparsereel::models {

/// Looks at the names of a file's tensors for which the module did not ask. A tensor of a layer that the module does
/// not have, or of an additional block, shows that the file belongs to another model. A counter or marker that a
/// trainer left in the file does not show this.
class KnownNames {
 public:
  explicit KnownNames(const std::set<std::string>& used);  // the names for which the module asked

  /// Returns true if the last word of the name is that of a known weight, and the name belongs to one of the module's
  /// layers or lists of blocks.
  bool has_place_for(const std::string& name) const;

 private:
  std::set<std::string> last_, layers_;
};

}  // namespace sparsereel::models
