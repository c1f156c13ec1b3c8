// Decides which rows of a prompt set this process renders: its share, which --share or the launcher determines. No
// torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/ranks/launched.h"

namespace sparsereel::app::sets {

/// The rows that this process renders: row i if i mod size == rank.
struct Share {
  int64_t rank = 0;
  int64_t size = 1;
  std::optional<int64_t> local_rank;  // rank among the processes of this machine, if a launcher gives it
  std::string source = "the whole set";
};

/// Parses `option`, a text such as "1/4" from --share. If it is empty, returns the share that find_launched() gives, or
/// all rows if there is no launcher. Throws Error naming the option or the variable.
Share find_share(const std::string& option, const Environment& environment);

}  // namespace sparsereel::app::sets
