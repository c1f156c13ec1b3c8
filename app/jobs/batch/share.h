// Which part of a prompt set this process renders. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/ranks/launched.h"

namespace sparsereel::app::sets {

/// Rows i mod size == rank are this process's.
struct Share {
  int64_t rank = 0;
  int64_t size = 1;
  std::optional<int64_t> local_rank;  // among the processes of this machine, where a launcher says so
  std::string source = "the whole set";
};

/// "1/4", as --share takes it; where that is empty, as find_launched() says; else the whole set. Throws Error naming
/// the option or the variable.
Share find_share(const std::string& option, const Environment& environment);

}  // namespace sparsereel::app::sets
