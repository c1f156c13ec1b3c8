// What a set's videos are and how they came about: one JSON line a video, one file a process. No torch.
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

/// The fields of a line that the program reads again; the others are for people and scripts.
struct ManifestEntry {                    // NOLINT(bugprone-exception-escape): json asserts inside its noexcept move
  int64_t row = 0;                        // in the set, from 0
  int64_t rows = 0;                       // of the set
  std::string output;                     // the video's name in the folder
  std::string state;                      // "done", "failed"
  std::string identity;                   // SHA-256 of the resolved recipe
  std::string sha256;                     // of the video; empty where there is none
  uint64_t bytes = 0;                     // likewise 0
  std::string finished;                   // UTC, "2026-11-21T16:35:07.123Z": sorts as it reads
  std::string cause;                      // of a failure
  uint64_t seed = 0;                      // of the noise
  int64_t seed_offset = 0;                // what of it the row's place added to that of all; see find_moved()
  std::string place;                      // of the row: "set.csv:3"
  std::string prompt;                     // of the recipe; a failure has none
  std::map<std::string, double> seconds;  // by stage
  nlohmann::json line;                    // all of it
};

/// The lines of one manifest, in their order. What is no line of ours (a process that was killed leaves half a line) is
/// left out and named in `warnings`.
std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& file,
                                          std::vector<std::string>& warnings);

/// Every manifest.*.jsonl in the folder. Throws Error where the folder cannot be read.
std::vector<std::filesystem::path> manifests_in(const std::filesystem::path& folder);

/// Their lines, earliest first.
std::vector<ManifestEntry> read_manifests(const std::filesystem::path& folder, std::vector<std::string>& warnings);

/// Where a share's manifest is.
std::filesystem::path manifest_path(const std::filesystem::path& folder, int64_t rank);

/// The one writer of manifest.<rank>.jsonl. It holds a lock on the file that ends with the process, however that ends.
class ManifestWriter {
 public:
  /// Creates the file where it is missing; cuts off half a line that a killed process left. Throws Error when another
  /// process has it.
  ManifestWriter(const std::filesystem::path& folder, int64_t rank);
  ~ManifestWriter();
  ManifestWriter(const ManifestWriter&) = delete;
  ManifestWriter& operator=(const ManifestWriter&) = delete;

  /// Appends one line and flushes it to the disk. Throws models::DiskError, and takes back what was written, when it
  /// does not fit. Throws the same where the file was moved, removed or shortened meanwhile: the next run, and whoever
  /// reads the file now, would miss lines.
  void append(const nlohmann::json& line);

 private:
  void check_place() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  off_t size_ = 0;  // bytes that are to be there at least
};

/// Now, as ManifestEntry::finished.
std::string utc_now();

}  // namespace sparsereel::app::sets
