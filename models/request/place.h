// Where in a file a value stands.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sparsereel::models {

/// A position in a file, from 1; 0: unknown.
struct Mark {
  int64_t line = 0, column = 0;
};
/// Where a file names an option, and where its value begins. Only the lines are known of a row that is no YAML.
struct Place {
  Mark key, value;
};
using Places = std::map<std::string, Place>;

}  // namespace sparsereel::models
