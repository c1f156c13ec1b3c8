// Searches folders for weights, within limits.
#include "models/store/checkpoint/model_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>
#include <system_error>

#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "models/files/config_fields.h"
#include "models/store/checkpoint/expert_name.h"
#include "models/store/checkpoint/stored_weights.h"
#include "models/store/checkpoint/tokenizer_place.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using Identity = std::pair<dev_t, ino_t>;

// Limits that no collection of models reaches. They end the search of a home folder or of a whole disk.
constexpr int kDeepest = 8;
constexpr size_t kMostFolders = 5'000, kMostEntries = 100'000, kMostFiles = 2'000;

constexpr const char* kModelIndex = "model_index.json";

/// Names of folders that programs keep beside their models. They are not searched.
constexpr std::array kFoldersOfPrograms = {"custom_nodes", "node_modules", "site-packages", "__pycache__", "venv",
                                           "output",       "outputs",      "input",         "temp"};

std::string small_name(const fs::path& path) {
  return lower_case(path.filename().string());
}

bool ends_with_one_of(const fs::path& file, std::initializer_list<const char*> endings) {
  const std::string name = small_name(file);
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

bool names_weights(const fs::path& file) {
  return ends_with_one_of(file, {".safetensors", ".gguf", ".pth", ".pt", ".safetensors.index.json"});
}

/// Returns true for files that are taken only if no file of the folder has names_weights(). They may hold a trainer's
/// state, or a second copy of the weights.
bool may_hold_weights(const fs::path& file) {
  return ends_with_one_of(file, {".bin", ".ckpt", ".bin.index.json"});
}

bool is_searched(const fs::path& folder) {
  const std::string name = small_name(folder);
  return !name.starts_with('.') && std::ranges::find(kFoldersOfPrograms, name) == kFoldersOfPrograms.end();
}

/// Returns the parts of split files except each first part, which stands for the whole file.
std::set<std::string> further_parts(const std::vector<fs::path>& paths) {
  std::set<std::string> names, further;
  for (const fs::path& path : paths) names.insert(path.filename().string());
  for (const std::string& name : names)
    if (const auto part = part_name(name); part && part->number > 1 && names.contains(part->of(1)))
      further.insert(name);
  return further;
}

/// Lists a folder, sorted by name. Links come last, so that a file is found under its own name first.
std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::pair<bool, fs::path>> entries;
  // If reading a folder fails before its end, the entries that were read so far are used.
  for (fs::directory_iterator entry(folder, ignored); entry != fs::directory_iterator(); entry.increment(ignored)) {
    entries.emplace_back(entry->is_symlink(ignored), entry->path());
    if (entries.size() >= kMostEntries) break;
  }
  std::ranges::sort(entries);
  std::vector<fs::path> paths;
  paths.reserve(entries.size());
  for (auto& [is_link, path] : entries) paths.push_back(std::move(path));
  return paths;
}

std::set<std::string> shards_in(const std::vector<fs::path>& paths) {
  std::set<std::string> shards;
  for (const fs::path& path : paths) {
    if (path.extension() != ".json" || !(names_weights(path) || may_hold_weights(path))) continue;
    try {
      for (const auto& [tensor, shard] : parse_weight_map(read_json(path), path.string())) shards.insert(shard);
    } catch (const Error&) {  // a damaged index is reported when the model is opened
    }
  }
  return shards;
}

std::vector<fs::path> weights_among(const std::vector<fs::path>& paths) {
  std::error_code ignored;
  std::set<std::string> shards = shards_in(paths);
  shards.merge(further_parts(paths));
  const bool others = std::ranges::none_of(paths, names_weights);
  std::vector<fs::path> weights;
  for (const fs::path& path : paths)
    if ((names_weights(path) || (others && may_hold_weights(path))) && !shards.contains(path.filename().string()) &&
        !fs::is_directory(path, ignored))
      weights.push_back(path);
  return weights;
}

/// Returns the only snapshot, or the one that refs/main names.
fs::path snapshot_of(const fs::path& repository) {
  std::error_code ignored;
  std::vector<fs::path> snapshots;
  for (const fs::path& path : sorted_entries(repository / "snapshots"))
    if (fs::is_directory(path, ignored)) snapshots.push_back(path);
  std::ifstream refs(repository / "refs" / "main");
  std::string newest;
  refs >> newest;
  for (const fs::path& snapshot : snapshots)
    if (snapshots.size() == 1 || snapshot.filename() == newest) return snapshot;
  if (snapshots.empty())
    throw bad_file(repository, "is a repository's folder in the Hugging Face cache, but it holds no snapshot",
                   "download the repository again");
  std::vector<std::string> names;
  for (const fs::path& snapshot : snapshots) names.push_back(snapshot.string());
  throw bad_file(repository,
                 "is a repository's folder in the Hugging Face cache, but refs/main names none of its snapshots",
                 "give one of them: " + first_of(names));
}

class TreeSearch {
 public:
  void visit(const fs::path& folder, int depth) {
    const auto identity = identity_of(folder);
    if (!identity || !folders_.insert(*identity).second) return;
    const std::vector<fs::path> paths = sorted_entries(folder);
    entries_ += paths.size();
    std::error_code ignored;
    if (depth > 0 && fs::exists(folder / kModelIndex, ignored)) return add_pipeline(folder);
    if (holds_tokenizer(folder)) tree_.tokenizers.push_back(folder);
    for (const fs::path& file : weights_among(paths)) add(file);
    for (const fs::path& path : paths) {
      if (!fs::is_directory(path, ignored) || !is_searched(path)) continue;
      if (depth == kDeepest || is_too_large()) {
        tree_.whole = false;
        return;
      }
      visit(path, depth + 1);
    }
  }
  ModelTree take() { return std::move(tree_); }

 private:
  bool is_too_large() const {
    return folders_.size() >= kMostFolders || entries_ >= kMostEntries || tree_.weights.size() >= kMostFiles;
  }

  void add_pipeline(const fs::path& folder) {
    const auto index = identity_of(folder / kModelIndex);
    if (index && files_.emplace(*index, "").second) tree_.pipelines.push_back(folder);
  }

  void add(const fs::path& file) {
    const auto identity = identity_of(file);
    if (identity && files_.emplace(*identity, expert_of_file(file)).second) tree_.weights.push_back(file);
  }

  ModelTree tree_;
  std::set<Identity> folders_;
  std::set<std::pair<Identity, std::string>> files_;  // the files found so far, each with the expert in its name
  size_t entries_ = 0;
};

}  // namespace

std::optional<std::pair<dev_t, ino_t>> identity_of(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

fs::path model_folder(const fs::path& named) {
  std::error_code ignored;
  if (named.filename() == kModelIndex && fs::is_regular_file(named, ignored))
    return named.has_parent_path() ? named.parent_path() : fs::path(".");
  const bool is_cached = fs::is_directory(named / "snapshots", ignored) && !fs::exists(named / kModelIndex, ignored);
  return is_cached ? snapshot_of(named) : named;
}

std::vector<fs::path> weights_in_folder(const fs::path& folder) {
  return weights_among(sorted_entries(folder));
}

ModelTree search_tree(const fs::path& folder) {
  TreeSearch search;
  search.visit(folder, 0);
  return search.take();
}

}  // namespace sparsereel::models
