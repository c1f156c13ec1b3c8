// Reads --share and the launchers' variables.
#include "app/commands/batch/share.h"

#include <array>

#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app::sets {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
};

// mpirun starts its processes inside a Slurm allocation, torchrun inside either: the innermost counts. A batch script
// of Slurm has SLURM_PROCID and SLURM_NTASKS without being one of several: only what srun started has the step's count.
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
}};

int64_t variable(const char* name, const char* value) {
  if (const auto number = parse_number<int64_t>(value)) return *number;
  throw bad_input(std::string("the variable ") + name + "=" + value + " is no whole number",
                  "unset it, or give --share i/n");
}

void check(const Share& share) {
  if (share.size >= 1 && share.rank >= 0 && share.rank < share.size) return;
  throw bad_input(
      share.source + ": there is no share " + std::to_string(share.rank) + " of " + std::to_string(share.size),
      "shares of n are counted from 0/n to (n-1)/n");
}

}  // namespace

Share find_share(const std::string& option, const Environment& environment) {
  Share share;
  if (!option.empty()) {
    const size_t slash = option.find('/');
    const auto rank = parse_number<int64_t>(option.substr(0, slash));
    const auto size = slash == std::string::npos ? std::nullopt : parse_number<int64_t>(option.substr(slash + 1));
    if (!rank || !size)
      throw bad_input("--share " + option + " is not of the form i/n", "write for example --share 0/4");
    share = {.rank = *rank, .size = *size, .local_rank = {}, .source = "--share " + option};
    check(share);
    return share;
  }
  for (const Launcher& launcher : kLaunchers) {
    const char* rank = environment(launcher.rank);
    const char* size = environment(launcher.size);
    if (rank == nullptr || size == nullptr) continue;
    share.rank = variable(launcher.rank, rank);
    share.size = variable(launcher.size, size);
    if (const char* local = environment(launcher.local_rank)) share.local_rank = variable(launcher.local_rank, local);
    share.source = std::string(launcher.name) + " (" + launcher.rank + ", " + launcher.size + ")";
    check(share);
    return share;
  }
  return share;
}

}  // namespace sparsereel::app::sets
