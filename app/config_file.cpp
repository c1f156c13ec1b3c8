// Reads YAML into option values and picks the model config that fits a checkpoint.
#include "app/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <vector>

#include "app/settings.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

YAML::Node load(const fs::path& path) {
  if (!fs::is_regular_file(path)) throw bad_input(path.string() + ": no such file", "check the path");
  // yaml-cpp reports by exceptions that do not know the file: here they become our own.
  try {
    return YAML::LoadFile(path.string());
  } catch (const YAML::Exception& error) {
    throw bad_input(path.string() + " is not valid YAML: " + error.what(), "correct the file");
  }
}

void require_map(const YAML::Node& node, const std::string& what) {
  if (!node.IsMap()) throw bad_input(what + " is not a map of keys to values", "write lines of the form 'steps: 25'");
}

std::map<std::string, std::string> option_values(const YAML::Node& node, const fs::path& file,
                                                 const std::string& prefix) {
  std::map<std::string, std::string> values;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar())
      throw bad_input(file.string() + ": " + prefix + (entry.first.IsScalar() ? entry.first.Scalar() : "a key") +
                          " is not a single value",
                      "write one number or text after the colon, or remove the key");
    if (!values.emplace(entry.first.Scalar(), entry.second.Scalar()).second)
      throw bad_input(file.string() + ": " + prefix + entry.first.Scalar() + " stands there twice", "keep one");
  }
  return values;
}

bool fits(const YAML::Node& match, const fs::path& file, const std::string& transformer_class,
          const models::CogVideoXConfig& transformer) {
  const std::map<std::string, std::string> actual = {
      {"class", transformer_class},
      {"layers", std::to_string(transformer.num_layers)},
      {"heads", std::to_string(transformer.num_attention_heads)},
      {"patch_size_t", transformer.patch_size_t ? std::to_string(*transformer.patch_size_t) : "null"}};
  bool all = true;
  for (const auto& entry : match) {
    const auto place = actual.find(entry.first.Scalar());
    if (place == actual.end())
      throw bad_input(file.string() + ": the key match." + entry.first.Scalar() + " is unknown",
                      "match has class, layers, heads and patch_size_t");
    all = all && place->second == (entry.second.IsNull() ? "null" : entry.second.Scalar());
  }
  return all;
}

}  // namespace

std::map<std::string, std::string> read_config_file(const fs::path& path) {
  const YAML::Node node = load(path);
  if (node.IsNull()) return {};
  require_map(node, path.string());
  return option_values(node, path, "");
}

std::optional<ModelConfig> match_model_config(const fs::path& file, const std::string& transformer_class,
                                              const models::CogVideoXConfig& transformer) {
  const YAML::Node node = load(file);
  require_map(node, file.string());
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    if (key != "match" && key != "architecture" && key != "defaults")
      throw bad_input(file.string() + ": the key " + key + " is unknown",
                      "a model config has match, architecture and defaults");
    require_map(entry.second, file.string() + ": " + key);
  }
  if (!node["match"]) throw bad_input(file.string() + ": match is missing", "name class, layers, heads, patch_size_t");
  if (!fits(node["match"], file, transformer_class, transformer)) return std::nullopt;
  ModelConfig config{file, {}};
  if (node["defaults"]) config.defaults = option_values(node["defaults"], file, "defaults.");
  return config;
}

std::optional<ModelConfig> find_model_config(const fs::path& folder, const std::string& transformer_class,
                                             const models::CogVideoXConfig& transformer) {
  std::vector<fs::path> files;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::optional<ModelConfig> found;
  for (const fs::path& file : files) {
    auto config = match_model_config(file, transformer_class, transformer);
    if (!config) continue;
    if (found)
      throw bad_input(found->file.string() + " and " + file.string() + " both match this checkpoint",
                      "make their match keys differ");
    found = std::move(config);
  }
  return found;
}

fs::path data_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {program.parent_path(), program.parent_path() / "share" / "sparsereel"})
    if (fs::is_directory(candidate / "configs")) return candidate;
  return SPARSEREEL_SOURCE_DIR;
}

}  // namespace sparsereel::app
