// Reads the environment variables of launchers of parallel programs: torchrun, mpirun, Slurm's srun. No torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace sparsereel::app {

/// Returns the value of an environment variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;
/// Returns a variable from the environment of this process.
const char* process_environment(const char* name);

/// This process's place among the processes that a launcher started.
struct Launched {
  int64_t rank = 0, size = 1;
  std::optional<int64_t> local_rank;  // rank among the processes of this host; unset if unknown
  std::string source;                 // "torchrun (RANK, WORLD_SIZE)"
};

/// Returns the place given by torchrun (RANK, WORLD_SIZE), Open MPI, MPICH and Intel MPI (PMI_RANK, PMI_SIZE) or a
/// Slurm step, in this order. If the variables of PMI and Slurm agree, uses Slurm's variables. Returns nothing without
/// a launcher. Throws Error naming a variable that is not a number, or a rank that is not below the size.
std::optional<Launched> find_launched(const Environment& environment);

/// The place where launched processes meet, as in Rendezvous of models/parallel/rendezvous.h.
struct MeetingPlace {
  std::string host;
  uint16_t port = 0;
  bool is_kept = false, is_one_host = false;
  std::string run = "0", secret = {};
};

/// Returns the place from MASTER_ADDR and MASTER_PORT, which torchrun sets. Without them, it is the first host of a
/// Slurm step, or this host if all ranks run here, and a port derived from the job's number. SPARSEREEL_JOB_SECRET is
/// the secret. Throws Error if the host is unknown, if MASTER_PORT is no port, if the secret is short, or if ranks of
/// several hosts have none.
MeetingPlace find_meeting_place(const Launched& launched, const Environment& environment);

/// Returns the first host of a list in Slurm's syntax: "gpu03" for "gpu[03-06,09],other".
std::string first_host(const std::string& slurm_nodes);

}  // namespace sparsereel::app
