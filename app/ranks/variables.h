// The environment variables that tell a process its rank.
#pragma once

#include <array>

namespace sparsereel::app {

/// The device of a rank that this program started (children.h): "cuda:1".
inline constexpr const char* kStartedRankDevice = "SPARSEREEL_RANK_DEVICE";

/// The variables of a launcher of parallel programs.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* job;  // a text that is unique among concurrent runs
};

// Launchers can be nested: mpirun runs inside a Slurm allocation, and torchrun inside either. The innermost launcher
// has started this process, so it comes first in the list. A Slurm batch script has SLURM_PROCID and SLURM_NTASKS,
// although it is a single process. SLURM_STEP_NUM_TASKS is used instead, because only processes that srun started have
// it.
inline constexpr std::array<Launcher, 4> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"},
}};

}  // namespace sparsereel::app
