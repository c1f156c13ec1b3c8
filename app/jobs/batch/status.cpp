// Reads the state of each row from its last line in the manifests. A row is done only if its video still exists.
#include "app/jobs/batch/status.h"

#include <map>
#include <sstream>

#include "app/counted.h"
#include "app/jobs/batch/manifest.h"
#include "app/jobs/write.h"
#include "hilbert/error.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

struct Sums {
  int64_t rows = 0, done = 0, failed = 0, lost = 0;
  std::map<std::string, double> seconds;
  nlohmann::json failures = nlohmann::json::array();
};

/// Sums up the last line of each row.
Sums add_up(const std::vector<ManifestEntry>& entries, const fs::path& folder) {
  std::map<int64_t, ManifestEntry> latest;
  for (const ManifestEntry& entry : entries) latest[entry.row] = entry;
  Sums sums;
  sums.rows = entries.back().rows;
  for (const auto& [row, entry] : latest) {
    if (row >= sums.rows) continue;  // a line of a longer set that used this folder before
    std::error_code error;
    if (entry.state == "failed") {
      ++sums.failed;
      sums.failures.push_back({{"row", row}, {"output", entry.output}, {"cause", entry.cause}});
    } else if (fs::file_size(folder / entry.output, error) == entry.bytes && !error) {
      ++sums.done;
      for (const auto& [stage, seconds] : entry.seconds) sums.seconds[stage] += seconds;
    } else {
      ++sums.lost;
    }
  }
  return sums;
}

}  // namespace

void show_status(const fs::path& folder, RunReport& report) {
  std::vector<std::string> warnings;
  const std::vector<ManifestEntry> entries = read_manifests(folder, warnings);
  print_warnings(warnings);
  if (entries.empty() && (manifests_in(folder).empty() || !warnings.empty()))
    throw bad_input(folder.string() + " holds no manifest.*.jsonl with a line in it", "name the folder of a set");
  if (entries.empty()) {  // without a line the number of rows is unknown
    report.content["set"] = {{"done", 0}, {"failed", 0}, {"failures", nlohmann::json::array()}};
    report.content["warnings"] = warnings;
    report.last_line = folder.string() + ": started, but no video is finished yet";
    return;
  }
  const Sums sums = add_up(entries, folder);
  const int64_t missing = sums.rows - sums.done - sums.failed;
  report.content["set"] = {{"rows", sums.rows},
                           {"done", sums.done},
                           {"failed", sums.failed},
                           {"missing", missing},
                           {"failures", sums.failures}};
  report.content["seconds"] = sums.seconds;
  report.content["warnings"] = warnings;
  std::ostringstream text;
  text << folder.string() << ": " << sums.done << " of " << counted(sums.rows, "row") << " done, " << sums.failed
       << " failed, " << missing << " missing";
  if (sums.lost > 0) text << " (" << sums.lost << " of them were done, but the file is missing or has changed)";
  if (sums.done > 0) {
    text << "\nseconds a video:";
    for (const auto& [stage, seconds] : sums.seconds)
      text << " " << stage << " " << fixed(seconds / static_cast<double>(sums.done), 2);
  }
  for (const auto& failure : sums.failures)
    text << "\nrow " << failure["row"] << " failed: " << failure["cause"].get<std::string>();
  report.last_line = text.str();
}

}  // namespace sparsereel::app::sets
