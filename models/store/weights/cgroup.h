// Reads how much memory Linux's control groups leave to this process. Containers are limited by control groups. No
// torch.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sparsereel::models {

/// Returns the bytes that the process may still allocate under its control groups and the groups above them; the
/// largest uint64_t if no group sets a limit. `membership` is the kernel's list of the process's groups. `mount` is the
/// folder of groups of version 2; groups of version 1 are in its subfolder memory/.
uint64_t available_by_cgroup(const std::filesystem::path& membership = "/proc/self/cgroup",
                             const std::filesystem::path& mount = "/sys/fs/cgroup");

/// Returns the lowest limit of these groups, including memory that is in use; the largest uint64_t if no group sets a
/// limit.
uint64_t limit_of_cgroup(const std::filesystem::path& membership = "/proc/self/cgroup",
                         const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace sparsereel::models
