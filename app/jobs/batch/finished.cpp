// Looks up finished videos by name, identity and place.
#include "app/jobs/batch/finished.h"

#include <algorithm>
#include <utility>

#include "app/jobs/batch/plan.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/json_fields.h"
#include "models/files/sha256.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Returns true if the row's contact sheet and latents exist, or were not asked for.
bool other_files_are_there(const VideoTask& row) {
  const auto is_missing = [](const fs::path& file) {
    std::error_code error;
    return !file.empty() && !fs::is_regular_file(file, error);
  };
  return !is_missing(row.options.run.contact_sheet) && !is_missing(row.options.save_latents);
}

/// Returns true if the video was made for this row when the row stood at another place in the set. The recipes then
/// differ only in the part of the seed that the place adds.
bool is_at_another_place(const VideoTask& row, const ManifestEntry& entry) {
  if (!row.seed_offset) return false;
  const uint64_t base = row.options.request.seed - static_cast<uint64_t>(*row.seed_offset);
  return entry.seed - static_cast<uint64_t>(entry.seed_offset) == base &&
         entry.identity == identity_with_seed(row, entry.seed);
}

/// Compares only the file name of the set, because a set may be moved together with its videos, and many paths may lead
/// to it.
bool is_of_the_set(const VideoTask& row, const ManifestEntry& entry) {
  const fs::path set = entry.place.substr(0, entry.place.rfind(':'));
  return set.filename() == fs::path(row.set).filename();
}

/// Orders the moves for find_moved(): a video may move only when no video that is still to move has its new name. If
/// lines were added to the set, each row takes the name of a later one, so the last row must move first; if lines were
/// removed, the first row must. Therefore the loop goes through the moves in both directions.
std::vector<MovedVideo> in_order(std::vector<MovedVideo> moved) {
  std::set<std::string> standing;
  for (const MovedVideo& each : moved) standing.insert(each.finished->output);
  std::vector<MovedVideo> ordered;
  const auto go = [&](const MovedVideo& each) {
    if (standing.contains(name_of(*each.row))) return false;
    standing.erase(each.finished->output);
    ordered.push_back(each);
    return true;
  };
  for (size_t before = 0; before != moved.size();) {
    before = moved.size();
    for ([[maybe_unused]] const bool down : {true, false}) {
      std::reverse(moved.begin(), moved.end());
      std::erase_if(moved, go);
    }
  }
  return ordered;
}

}  // namespace

FinishedVideos::FinishedVideos(const std::vector<ManifestEntry>& entries, fs::path folder)
    : folder_(std::move(folder)) {
  for (const ManifestEntry& entry : entries) {
    if (entry.state != "done" || entry.identity.empty()) continue;
    by_name_[entry.output].push_back(&entry);
    by_identity_[entry.identity].push_back(&entry);
    by_prompt_[entry.prompt].push_back(&entry);
  }
}

bool FinishedVideos::is_there(const ManifestEntry& entry) {
  const fs::path video = folder_ / entry.output;
  const auto sound = entry.line.find("sound");
  const fs::path beside = sound == entry.line.end() ? fs::path() : sound_beside(video);
  std::error_code error;
  if (!beside.empty() && !fs::is_regular_file(beside, error)) return false;
  if (!is_unchanged(video, entry.bytes, entry.sha256)) return false;
  if (beside.empty() || !sound->contains("sha256")) return true;  // older manifests say nothing of the sound's file
  return is_unchanged(beside, sound->value("bytes", uint64_t{0}), text_of(*sound, "sha256"));
}

bool FinishedVideos::is_unchanged(const fs::path& file, uint64_t bytes, const std::string& sha256) {
  std::error_code error;
  if (fs::file_size(file, error) != bytes || error) return false;
  std::string& hash = hashes_[file];
  if (hash.empty()) hash = models::sha256_of_file(file);
  return hash == sha256;
}

const ManifestEntry* FinishedVideos::take(VideoTask& row, const ManifestEntry& entry) {
  taken_.insert(entry.output);
  if (entry.identity == row.identity) return &entry;
  row.options.request.seed = row.plan.seed = entry.seed;
  row.recipe["seed"] = entry.seed;
  row.seed_offset = entry.seed_offset;
  row.identity = entry.identity;
  return &entry;
}

const ManifestEntry* FinishedVideos::find(VideoTask& row) {
  const auto named = by_name_.find(name_of(row));
  if (named == by_name_.end() || row.identity.empty() || !other_files_are_there(row)) return nullptr;
  const auto find_if = [&](const auto& fits) {
    const Entries& entries = named->second;
    return std::find_if(entries.rbegin(), entries.rend(),
                        [&](const ManifestEntry* entry) { return fits(*entry) && is_there(*entry); });
  };
  auto found = find_if([&](const ManifestEntry& entry) { return entry.identity == row.identity; });
  if (found == named->second.rend())
    found = find_if([&](const ManifestEntry& entry) { return is_at_another_place(row, entry); });
  return found == named->second.rend() ? nullptr : take(row, **found);
}

const ManifestEntry* FinishedVideos::first_free(const VideoTask& row, const Entries& entries) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const ManifestEntry* entry) {
    return is_of_the_set(row, *entry) && !taken_.contains(entry->output) && is_there(*entry);
  });
  return found == entries.end() ? nullptr : *found;
}

const ManifestEntry* FinishedVideos::find_elsewhere(VideoTask& row) {
  if (row.identity.empty() || !other_files_are_there(row)) return nullptr;
  if (const auto same = by_identity_.find(row.identity); same != by_identity_.end())
    if (const ManifestEntry* entry = first_free(row, same->second)) return take(row, *entry);
  if (!row.seed_offset) return nullptr;
  const auto [place, added] = at_any_place_.try_emplace(identity_with_seed(row, 0));
  if (added) {
    for (const ManifestEntry* entry : by_prompt_[row.options.request.prompt])
      if (is_at_another_place(row, *entry)) place->second.push_back(entry);
  }
  const ManifestEntry* entry = first_free(row, place->second);
  return entry == nullptr ? nullptr : take(row, *entry);
}

std::vector<MovedVideo> FinishedVideos::find_moved(const std::vector<VideoTask*>& rows) {
  std::vector<MovedVideo> moved;
  for (VideoTask* row : rows)
    if (const ManifestEntry* entry = find_elsewhere(*row)) moved.push_back({row, entry});
  return in_order(std::move(moved));
}

std::vector<std::string> FinishedVideos::left_over(const std::set<std::string>& names) const {
  std::vector<std::string> left;
  std::error_code error;
  for (const auto& [name, entries] : by_name_)
    if (!names.contains(name) && fs::is_regular_file(folder_ / name, error)) left.push_back(name);
  for (const FileBeside& checkpoint : checkpoints_in(folder_))
    if (!names.contains(checkpoint.output.filename().string())) left.push_back(checkpoint.path.filename().string());
  return left;
}

}  // namespace sparsereel::app::sets
