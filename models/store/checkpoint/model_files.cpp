// Lists a model's places and files.
#include "models/store/checkpoint/model_files.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "models/files/atomic_file.h"
#include "models/store/checkpoint/model_tree.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

std::optional<std::pair<dev_t, ino_t>> file_identity(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? identity_of(path) : std::nullopt;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

ModelFiles::ModelFiles(const Checkpoint& folder) {
  std::error_code ignored;
  const auto add = [&](const fs::path& file) {
    if (const auto identity = file_identity(file)) files_.insert(*identity);
  };
  for (const fs::path& place : folder.places()) {
    places_.push_back(fs::weakly_canonical(place, ignored));
    add(place);
    constexpr auto kFollow = fs::directory_options::follow_directory_symlink;
    for (auto entry = fs::recursive_directory_iterator(place, kFollow, ignored);
         !ignored && entry != fs::recursive_directory_iterator(); entry.increment(ignored))
      add(entry->path());
  }
}

bool ModelFiles::touched_by(const fs::path& path) const {
  if (path.empty() || places_.empty()) return false;
  std::error_code ignored;
  const fs::path target = fs::weakly_canonical(behind_links(path), ignored);
  const auto identity = file_identity(path);
  return (identity && files_.contains(*identity)) ||
         std::ranges::any_of(places_, [&](const fs::path& place) { return lies_in(target, place); });
}

}  // namespace sparsereel::models
