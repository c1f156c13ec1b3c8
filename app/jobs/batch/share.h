// Decides which part of a prompt set this process renders. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/ranks/launched.h"

namespace sparsereel::app::sets {

/// Selects the rows with i mod size == rank.
struct Share {
  int64_t rank = 0;
  int64_t size = 1;
  std::optional<int64_t> local_rank;  // among the processes of this machine, if a launcher says so
  std::string source = "the whole set";
};

/// Parses `option`, "1/4" as --share takes it. If it is empty, takes the share from find_launched(), else the whole
/// set. Throws Error naming the option or the variable.
Share find_share(const std::string& option, const Environment& environment);

}  // namespace sparsereel::app::sets
