// Reads the control files of versions 1 and 2.
#include "models/store/weights/cgroup.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Names of a group's files. memory.stat counts the page cache under two keys: recently used pages and others.
struct Names {
  const char *limit, *usage, *active, *inactive;
};

constexpr Names kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file",
                             "total_inactive_file"};
constexpr Names kVersion2 = {"memory.max", "memory.current", "active_file", "inactive_file"};

/// Returns the whole number in a file; nullopt if there is no such file, or if it says "max" (no limit).
std::optional<uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  uint64_t number = 0;
  if (stream >> number) return number;
  return std::nullopt;
}

/// Returns the bytes of the group's cached files. They do not count as used, because the kernel drops such pages when
/// memory runs short.
uint64_t page_cache(const fs::path& group, const Names& names) {
  uint64_t bytes = 0;
  std::ifstream stream(group / "memory.stat");
  std::string key;
  for (uint64_t value = 0; stream >> key >> value;)
    if (key == names.active || key == names.inactive) bytes += value;
  return bytes;
}

/// Returns the group's limit minus its usage without cached files.
uint64_t left_in(const fs::path& group, const Names& names) {
  const auto limit = number_in(group / names.limit), usage = number_in(group / names.usage);
  if (!limit || !usage) return std::numeric_limits<uint64_t>::max();
  const uint64_t used = *usage - std::min(*usage, page_cache(group, names));
  return *limit - std::min(*limit, used);
}

/// Calls ask(folder, names) for the process's groups and all groups above them. Returns the smallest of the results, or
/// the largest uint64_t if there are no groups.
template <typename Ask>
uint64_t least_of_groups(const fs::path& membership, const fs::path& mount, const Ask& ask) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && controllers.find("memory") == std::string::npos) continue;
    const fs::path root = version2 ? mount : mount / "memory";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
      least = std::min(least, ask(root / group, version2 ? kVersion2 : kVersion1));
      if (group.empty()) break;
    }
  }
  return least;
}

}  // namespace

uint64_t available_by_cgroup(const fs::path& membership, const fs::path& mount) {
  return least_of_groups(membership, mount, left_in);
}

uint64_t limit_of_cgroup(const fs::path& membership, const fs::path& mount) {
  return least_of_groups(membership, mount, [](const fs::path& group, const Names& names) {
    return number_in(group / names.limit).value_or(std::numeric_limits<uint64_t>::max());
  });
}

}  // namespace sparsereel::models
