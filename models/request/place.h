// Positions of values in files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sparsereel::models {

/// A position in a file, counted from 1; 0 if unknown.
struct Mark {
  int64_t line = 0, column = 0;
};
/// The places in a file where an option is named and where its value begins. For a row of a prompt set that is not
/// YAML, only lines are known.
struct Place {
  Mark key, value;
};
using Places = std::map<std::string, Place>;

}  // namespace sparsereel::models
