// Reads how much memory Linux's control groups, which limit containers, leave to this process. No torch.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sparsereel::models {

/// Returns the bytes that all levels of the process's control groups allow it to allocate; the largest uint64_t if no
/// group sets a limit. `membership` is the kernel's list of the groups. `mount` is the folder of version 2's groups;
/// version 1's groups are in its folder memory/.
uint64_t available_by_cgroup(const std::filesystem::path& membership = "/proc/self/cgroup",
                             const std::filesystem::path& mount = "/sys/fs/cgroup");

/// Returns the least limit of these groups, whatever is in use.
uint64_t limit_of_cgroup(const std::filesystem::path& membership = "/proc/self/cgroup",
                         const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace sparsereel::models
