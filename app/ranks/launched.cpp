// Finds the launcher whose variables are set and reads them.
#include "app/ranks/launched.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "app/ranks/variables.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

int64_t number_in(const char* name, const char* value) {
  if (const auto number = parse_number<int64_t>(value)) return *number;
  throw bad_input(std::string("the variable ") + name + "=" + value + " is not a whole number",
                  "unset it; batch also takes --share, such as --share 0/4, in place of a launcher's variables");
}

std::string text_in(const char* name, const Environment& environment) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

const Launcher* find_launcher(const Environment& environment) {
  const auto is_there = [&](const Launcher& launcher) {
    return environment(launcher.rank) != nullptr && environment(launcher.size) != nullptr;
  };
  const auto agree = [&](const Launcher& one, const Launcher& other) {
    return text_in(one.rank, environment) == text_in(other.rank, environment) &&
           text_in(one.size, environment) == text_in(other.size, environment);
  };
  const auto found = std::ranges::find_if(kLaunchers, is_there);
  if (found == kLaunchers.end()) return nullptr;
  // srun --mpi=pmi2 sets MPI's variables as well as Slurm's. Slurm's tell more, so they are used if both give the same
  // rank and size. If mpirun runs inside a Slurm step, they differ, and MPI's are used.
  const Launcher& slurm = kLaunchers.back();
  return is_there(slurm) && std::string_view(found->rank) == "PMI_RANK" && agree(*found, slurm) ? &slurm : &*found;
}

/// Returns a port that few other programs use, equal for all ranks of a job.
uint16_t port_of_job(const std::string& job) {
  constexpr uint64_t kFirst = 20000, kCount = 12000;  // below the ports that Linux chooses by itself
  uint64_t sum = 14695981039346656037U;
  for (const char c : job) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return static_cast<uint16_t>(kFirst + sum % kCount);
}

constexpr const char* kSecret = "SPARSEREEL_JOB_SECRET";

uint16_t port_in(const std::string& text) {
  const int64_t port = number_in("MASTER_PORT", text.c_str());
  if (port < 1 || port > 65535)
    throw bad_input("the variable MASTER_PORT=" + text + " is not a port",
                    "set it to a number from 1 to 65535 that is free on rank 0's host");
  return static_cast<uint16_t>(port);
}

bool is_this_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Throws Error for a missing or short secret. A short secret can be guessed, because anybody who connects to a rank
/// receives an HMAC made with it.
void require_secret(const MeetingPlace& place) {
  constexpr size_t kLeast = 16;
  constexpr const char* kRemedy = "give all ranks the same random text, such as that of 'openssl rand -hex 16'";
  if (place.secret.empty() && !place.is_one_host)
    throw bad_input(std::string("the ranks of several hosts need a secret, and ") + kSecret + " is not set", kRemedy);
  if (!place.secret.empty() && place.secret.size() < kLeast)
    throw bad_input(
        std::string("the variable ") + kSecret + " has fewer than " + std::to_string(kLeast) + " characters", kRemedy);
}

}  // namespace

const char* process_environment(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets it
}

std::optional<Launched> find_launched(const Environment& environment) {
  const Launcher* launcher = find_launcher(environment);
  if (launcher == nullptr) return std::nullopt;
  Launched launched;
  launched.rank = number_in(launcher->rank, environment(launcher->rank));
  launched.size = number_in(launcher->size, environment(launcher->size));
  if (const char* local = environment(launcher->local_rank))
    launched.local_rank = number_in(launcher->local_rank, local);
  launched.source = std::string(launcher->name) + " (" + launcher->rank + ", " + launcher->size + ")";
  if (launched.size >= 1 && launched.rank >= 0 && launched.rank < launched.size) return launched;
  throw bad_input(
      launched.source + ": there is no rank " + std::to_string(launched.rank) + " of " + std::to_string(launched.size),
      "ranks of n are counted from 0 to n-1");
}

std::string first_host(const std::string& slurm_nodes) {
  const size_t end = slurm_nodes.find_first_of(",[");
  std::string host = slurm_nodes.substr(0, end);
  if (end == std::string::npos || slurm_nodes[end] == ',') return host;
  const size_t close = slurm_nodes.find(']', end);
  host += slurm_nodes.substr(end + 1, slurm_nodes.find_first_of("-,]", end) - end - 1);
  if (close == std::string::npos) return host;
  return host + slurm_nodes.substr(close + 1, slurm_nodes.find(',', close) - close - 1);
}

MeetingPlace find_meeting_place(const Launched& launched, const Environment& environment) {
  const Launcher* launcher = find_launcher(environment);
  const auto text = [&](const char* name) { return text_in(name, environment); };
  std::string job = launcher == nullptr ? "" : text(launcher->job);
  if (job.empty()) job = text("SLURM_JOB_ID");
  MeetingPlace place{.host = text("MASTER_ADDR")};
  if (place.host.empty() && !text("SLURM_STEP_NODELIST").empty()) place.host = first_host(text("SLURM_STEP_NODELIST"));
  place.is_one_host = launcher != nullptr && text(launcher->local_size) == std::to_string(launched.size);
  if (place.host.empty() && place.is_one_host) place.host = "127.0.0.1";
  if (place.host.empty())
    throw bad_input(launched.source + ": the host of rank 0 is unknown",
                    "set MASTER_ADDR to that host for all ranks, and MASTER_PORT to a free port there");
  const std::string port = text("MASTER_PORT");
  place.port = port.empty() ? port_of_job(job + "." + text("SLURM_STEP_ID")) : port_in(port);
  place.is_kept = text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.run = job.empty() ? "0" : job + "." + text("SLURM_STEP_ID") + text("TORCHELASTIC_RESTART_COUNT");
  place.is_one_host = place.is_one_host || is_this_host(place.host);
  place.secret = text(kSecret);
  require_secret(place);
  return place;
}

}  // namespace sparsereel::app
