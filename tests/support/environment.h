// Stands in for the process's environment variables in tests.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "app/ranks/launched.h"

namespace sparsereel::test {

inline app::Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace sparsereel::test
