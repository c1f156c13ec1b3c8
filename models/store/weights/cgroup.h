// How much memory Linux's control groups, a container's limits, leave to this process. No torch.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sparsereel::models {

/// Bytes that may still be allocated: the least of what any level of the process's groups allows; the largest number
/// where none sets a limit. `membership`: the kernel's list of the groups. `mount`: the folder of version 2's groups;
/// those of version 1 are in its folder memory/.
uint64_t available_by_cgroup(const std::filesystem::path& membership = "/proc/self/cgroup",
                             const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace sparsereel::models
