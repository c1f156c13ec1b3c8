// Which part of a prompt set this process renders. No torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace sparsereel::app::sets {

/// Rows i mod size == rank are this process's.
struct Share {
  int64_t rank = 0;
  int64_t size = 1;
  std::optional<int64_t> local_rank;  // among the processes of this machine, where a launcher says so
  std::string source = "the whole set";
};

/// Value of an environment variable; null where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// "1/4", as --share takes it; where that is empty, the variables of torchrun (RANK, WORLD_SIZE), Open MPI, MPICH and
/// Intel MPI (PMI_RANK, PMI_SIZE) or of a Slurm step, in this order; else the whole set. Throws Error naming the option
/// or the variable.
Share find_share(const std::string& option, const Environment& environment);

}  // namespace sparsereel::app::sets
