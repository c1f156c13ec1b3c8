// Which tensors of a file a module would know.
#pragma once

#include <set>
#include <string>

namespace sparsereel::models {

/// Names that the module asked for tell which others are its own: those of a layer that the config leaves out, or of
/// one more block, make another model. A counter or a marker that a trainer left does not.
class KnownNames {
 public:
  explicit KnownNames(const std::set<std::string>& used);

  bool has_place_for(const std::string& name) const;

 private:
  std::set<std::string> last_, layers_;
};

}  // namespace sparsereel::models
