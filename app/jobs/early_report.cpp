// Decides whether a report may replace a file.
#include "app/jobs/early_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/jobs/outputs.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

/// Returns every argument that may be a file name, except the value of --report. Finds FILE in `FILE`, `--x FILE`,
/// `--x=FILE` and `-xFILE`.
std::vector<fs::path> files_among(const std::vector<std::string>& words) {
  std::vector<fs::path> files;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with("--report=") || (i > 0 && words[i - 1] == "--report")) continue;
    files.emplace_back(word);
    if (word.starts_with("--") && word.find('=') != std::string::npos)
      files.emplace_back(word.substr(word.find('=') + 1));
    else if (word.starts_with("-") && word.size() > 2)
      files.emplace_back(word.substr(2));
  }
  return files;
}

/// Returns the files that the settings name, including the recipes and sounds beside videos.
std::vector<fs::path> files_of(const Settings& settings) {
  const fs::path output = settings.text("output", kDefaultOutput);
  std::vector<fs::path> files = {recipe_beside(output), sound_beside(output), recipe_beside(settings.text("from", ""))};
  for (const OptionSpec& spec : option_table())
    if (spec.kind() == ValueKind::file && spec.key() != "report") files.emplace_back(settings.text(spec.key(), ""));
  return files;
}

bool is_models(const fs::path& path, const Settings& settings) {
  try {
    return files_of_model(settings).touched_by(path);
  } catch (const Error&) {  // the report itself says that the model cannot be opened
    return false;
  }
}

bool is_free(const fs::path& path) {
  constexpr uint64_t kMostBytes = 256 << 20;
  const models::AtomicFile probe(path);
  if (!fs::exists(path) || fs::is_empty(path)) return true;
  const auto json = models::parse_json_if_valid(models::read_regular_file(path, kMostBytes, ""));
  return json.is_object() && json.contains("version") && json.contains("exit");
}

}  // namespace

fs::path early_report(const fs::path& wanted, const Settings& settings, const std::vector<std::string>& words) {
  if (wanted.empty() || wanted == "-") return {};
  std::vector<fs::path> others = files_among(words);
  for (const fs::path& file : files_of(settings)) others.push_back(file);
  const auto is_wanted = [&](const fs::path& other) { return !other.empty() && same_file(wanted, other); };
  try {
    const bool is_other = std::any_of(others.begin(), others.end(), is_wanted) || is_models(wanted, settings);
    return !is_other && is_free(wanted) ? wanted : fs::path();
  } catch (const Error&) {
    return {};
  } catch (const fs::filesystem_error&) {
    return {};
  }
}

}  // namespace sparsereel::app
