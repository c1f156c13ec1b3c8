// Reads YAML into option values and picks the model config that fits a checkpoint.
#include "app/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
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

template <typename Number>
bool is_number(const std::string& text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

nlohmann::json scalar_to_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // in quotes
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  double number = 0;
  if (is_number(text, whole)) return whole;
  if (is_number(text, number)) return number;
  return text;
}

nlohmann::json to_json(const YAML::Node& node) {
  if (node.IsNull()) return nullptr;
  if (node.IsScalar()) return scalar_to_json(node);
  nlohmann::json json = node.IsMap() ? nlohmann::json::object() : nlohmann::json::array();
  for (const auto& entry : node) {
    if (node.IsMap())
      json[entry.first.Scalar()] = to_json(entry.second);
    else
      json.push_back(to_json(entry));
  }
  return json;
}

YAML::Node load_model_config(const fs::path& file) {
  YAML::Node node = load(file);
  require_map(node, file.string());
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    if (key != "match" && key != "architecture" && key != "defaults")
      throw bad_input(file.string() + ": the key " + key + " is unknown",
                      "a model config has match, architecture and defaults");
    require_map(entry.second, file.string() + ": " + key);
  }
  if (!node["match"]) throw bad_input(file.string() + ": match is missing", "name class, layers, heads, patch_size_t");
  return node;
}

ModelConfig with_defaults(const YAML::Node& node, const fs::path& file) {
  ModelConfig config{file, {}};
  if (node["defaults"]) config.defaults = option_values(node["defaults"], file, "defaults.");
  return config;
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
  const YAML::Node node = load_model_config(file);
  if (!fits(node["match"], file, transformer_class, transformer)) return std::nullopt;
  return with_defaults(node, file);
}

Architecture read_architecture(const fs::path& file) {
  const YAML::Node node = load_model_config(file);
  const YAML::Node transformer_class = node["match"]["class"];
  if (!transformer_class || !transformer_class.IsScalar())
    throw bad_input(file.string() + ": match.class is missing",
                    "name the transformer's class, as its config.json does");
  if (!node["architecture"])
    throw bad_input(file.string() + ": architecture is missing",
                    "give it transformer, vae, text_encoder and scheduler, each as its config.json has it");
  return {with_defaults(node, file), transformer_class.Scalar(), to_json(node["architecture"])};
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
