// The manifests of a set: one JSON line per video, one file per process. No torch.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app::sets {

/// A line of a manifest. The program reads these fields; a line's other fields are for people and scripts.
struct ManifestEntry {                    // NOLINT(bugprone-exception-escape): json asserts inside its noexcept move
  int64_t row = 0;                        // position in the set, from 0
  int64_t rows = 0;                       // number of rows in the set
  std::string output;                     // file name of the video in the folder
  std::string state;                      // "done" or "failed"
  std::string identity;                   // SHA-256 of the resolved recipe
  std::string sha256;                     // hash of the video; empty if there is none
  uint64_t bytes = 0;                     // size of the video; 0 if there is none
  std::string finished;                   // UTC, "2026-11-21T16:35:07.123Z": later times compare greater as text
  std::string cause;                      // why the row failed
  uint64_t seed = 0;                      // seed of the noise
  int64_t seed_offset = 0;                // the part of the seed that the row's place added; see find_moved()
  std::string place;                      // place of the row: "set.csv:3"
  std::string prompt;                     // from the recipe; empty for a failure
  std::map<std::string, double> seconds;  // by stage
  nlohmann::json line;                    // the whole line
};

/// Returns the lines of a manifest in order. Invalid lines, such as the half line of a killed process, are skipped and
/// named in `warnings`.
std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& file,
                                          std::vector<std::string>& warnings);

/// Returns every manifest.*.jsonl in the folder. Throws Error if the folder cannot be read.
std::vector<std::filesystem::path> manifests_in(const std::filesystem::path& folder);

/// Returns the lines of all manifests, earliest first.
std::vector<ManifestEntry> read_manifests(const std::filesystem::path& folder, std::vector<std::string>& warnings);

std::filesystem::path manifest_path(const std::filesystem::path& folder, int64_t rank);

/// The only writer of manifest.<rank>.jsonl. It locks the file; the lock ends with the process, even if the process is
/// killed.
class ManifestWriter {
 public:
  /// Creates the file if it is missing, and cuts off the half line of a killed process. Throws Error if another process
  /// has locked it.
  ManifestWriter(const std::filesystem::path& folder, int64_t rank);
  ~ManifestWriter();
  ManifestWriter(const ManifestWriter&) = delete;
  ManifestWriter& operator=(const ManifestWriter&) = delete;

  /// Appends a line and flushes it to disk. If the disk has no room for the line, removes what was written of it and
  /// throws models::DiskError. Also throws models::DiskError if the file was moved, removed or shortened, because
  /// readers would then miss lines.
  void append(const nlohmann::json& line);

 private:
  void check_place() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  off_t size_ = 0;  // bytes that the file must have at least
};

/// Returns the time as in ManifestEntry::finished.
std::string utc_now();

}  // namespace sparsereel::app::sets
