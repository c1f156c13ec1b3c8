// What the launchers of parallel programs say in the environment: torchrun, mpirun, Slurm's srun. No torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace sparsereel::app {

/// Value of an environment variable; null where it is not set.
using Environment = std::function<const char*(const char* name)>;
/// The process's own.
const char* process_environment(const char* name);

/// This process's place among those that a launcher started.
struct Launched {
  int64_t rank = 0, size = 1;
  std::optional<int64_t> local_rank;  // among the processes of this host, where the launcher says so
  std::string source;                 // "torchrun (RANK, WORLD_SIZE)"
};

/// By the variables of torchrun (RANK, WORLD_SIZE), Open MPI, MPICH and Intel MPI (PMI_RANK, PMI_SIZE) or of a Slurm
/// step, in this order, but of a Slurm step where PMI's are the same; nothing where there are none. Throws Error naming
/// a variable that is no number, or a rank that is none of so many.
std::optional<Launched> find_launched(const Environment& environment);

/// Where launched processes find each other: as Rendezvous in models/parallel/rendezvous.h.
struct MeetingPlace {
  std::string host;
  uint16_t port = 0;
  bool is_kept = false, is_one_host = false;
  std::string run = "0", secret = {};
};

/// MASTER_ADDR and MASTER_PORT, which torchrun sets; where they are missing, the first host of a Slurm step, and a port
/// that is made of the job's number. SPARSEREEL_JOB_SECRET is the secret. Throws Error where nothing tells the host,
/// MASTER_PORT is no port, and where several hosts have no secret or a short one.
MeetingPlace find_meeting_place(const Launched& launched, const Environment& environment);

/// "gpu[03-06,09],other" -> "gpu03"
std::string first_host(const std::string& slurm_nodes);

}  // namespace sparsereel::app
