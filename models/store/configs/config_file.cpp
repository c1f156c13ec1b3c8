// Reads YAML into option values, and picks the model config that fits a checkpoint.
#include "models/store/configs/config_file.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/config_fields.h"
#include "models/files/regular_file.h"
#include "models/store/checkpoint/family.h"
#include "models/store/configs/nearest.h"
#include "models/store/configs/published_yaml.h"
#include "models/store/configs/yaml_text.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Limits that no config reaches. They stop files whose aliases expand a small text to a huge or endless tree.
constexpr int kDeepest = 20;
constexpr int kMostNodes = 20'000;

/// Throws Error if the tree is too deep or too large, or if a key is not a scalar or occurs twice. Without these
/// checks, a part of the file could be ignored, or reading might not end.
void check_tree(const YAML::Node& node, const fs::path& file, int depth, int& nodes) {
  if (depth > kDeepest || ++nodes > kMostNodes)
    throw bad_yaml(file, node.Mark(), "the file is nested too deeply or too large", "write it without aliases");
  if (!node.IsMap() && !node.IsSequence()) return;
  std::set<std::string> keys;
  for (const auto& entry : node) {
    if (!node.IsMap()) {
      check_tree(entry, file, depth + 1, nodes);
      continue;
    }
    if (!entry.first.IsScalar())
      throw bad_yaml(file, entry.first.Mark(), "a key is not a single word", "write lines of the form 'steps: 25'");
    if (!keys.insert(entry.first.Scalar()).second)
      throw bad_yaml(file, entry.first.Mark(), entry.first.Scalar() + " appears twice", "keep one");
    check_tree(entry.second, file, depth + 1, nodes);
  }
}

/// Parses the file's only document. The node is null if the file has only comments.
YAML::Node parse(const std::string& text, const fs::path& file) {
  YAML::Node document = load_yaml(text, file);
  int nodes = 0;
  check_tree(document, file, 0, nodes);
  return document;
}

void require_map(const YAML::Node& node, const fs::path& file, const std::string& what) {
  if (!node.IsMap())
    throw bad_yaml(file, node.Mark(), what + " is not a map of keys to values", "write lines of the form 'steps: 25'");
}

YamlOptions option_values(const YAML::Node& node, const fs::path& file, const std::string& prefix) {
  YamlOptions options;
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    if (!entry.second.IsScalar())
      throw bad_yaml(file, entry.second.Mark(), prefix + key + " is not a single value",
                     "write one number or text after the colon, or remove the key");
    options.values[key] = entry.second.Scalar();
    options.places[key] = {mark_of(entry.first.Mark()), mark_of(entry.second.Mark())};
  }
  return options;
}

/// Throws Error for a key that is not in `known`.
void check_keys(const YAML::Node& node, const fs::path& file, const std::string& prefix,
                const std::vector<std::string>& known, const std::string& remedy) {
  for (const auto& entry : node) {
    const std::string key = entry.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw bad_yaml(file, entry.first.Mark(), "the key " + prefix + key + " is unknown",
                     did_you_mean(key, known, remedy));
  }
}

template <typename Number>
bool is_number(const std::string& text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

nlohmann::json scalar_to_json(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // YAML's tag of text in quotes
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

YAML::Node parse_model_config(const std::string& text, const fs::path& file) {
  YAML::Node node = parse(text, file);
  require_map(node, file, "the file");
  check_keys(node, file, "", {"match", "architecture", "defaults", "presets", "few_steps", "distilled", "published"},
             "a model config has match, architecture, defaults, presets, few_steps, distilled and published");
  for (const auto& entry : node)
    if (const std::string key = entry.first.Scalar(); key != "published" && key != "distilled")
      require_map(entry.second, file, entry.first.Scalar());
  std::vector<std::string> keys = {"class", "layers", "heads"};
  for (const std::string& mark : all_fingerprint_keys()) keys.push_back(mark);
  if (!node["match"]) throw bad_file(file, "match is missing", "give it some of " + list_of(keys));
  check_keys(node["match"], file, "match.", keys, "match has " + list_of(keys));
  for (const auto& entry : node["match"])
    if (!entry.second.IsScalar() && !entry.second.IsNull())
      throw bad_yaml(file, entry.second.Mark(), "match." + entry.first.Scalar() + " is not a single value",
                     "write the transformer's value, or null");
  return node;
}

std::vector<std::string> texts_of(const YAML::Node& node) {
  if (node.IsScalar()) return {node.Scalar()};
  std::vector<std::string> texts;
  for (const auto& each : node) texts.push_back(each.Scalar());
  return texts;
}

/// Reads a row of `distilled`. All keys but `lora` are required; a row without `lora` describes a distilled checkpoint
/// instead of a LoRA. `source` says where the values come from; only people read it.
Distilled distilled_row(const YAML::Node& node, const fs::path& file) {
  const std::vector<std::string> keys = {"name", "steps", "lora", "repository", "words", "source", "options"};
  require_map(node, file, "a row of distilled");
  check_keys(node, file, "distilled.", keys, "a row has " + list_of(keys));
  for (const std::string& key : keys)
    if (!node[key] && key != "lora")
      throw bad_yaml(file, node.Mark(), "a row of distilled lacks " + key, "give it " + list_of(keys));
  require_map(node["options"], file, "distilled.options");
  const auto steps = parse_number<int64_t>(node["steps"].Scalar());
  if (!steps) throw bad_yaml(file, node["steps"].Mark(), "distilled.steps is not a number", "write a number of steps");
  return {.name = node["name"].Scalar(),
          .steps = *steps,
          .loras = node["lora"] ? texts_of(node["lora"]) : std::vector<std::string>(),
          .repository = node["repository"].Scalar(),
          .words = texts_of(node["words"]),
          .options = option_values(node["options"], file, "distilled.options.")};
}

/// Returns the options of each preset in this section, by the preset's name.
std::map<std::string, YamlOptions> presets_of(const YAML::Node& node, const fs::path& file,
                                              const std::string& section) {
  std::map<std::string, YamlOptions> presets;
  for (const auto& preset : node[section]) {
    const std::string name = section + "." + preset.first.Scalar();
    require_map(preset.second, file, name);
    presets[preset.first.Scalar()] = option_values(preset.second, file, name + ".");
  }
  return presets;
}

ModelConfig options_of(const YAML::Node& node, const fs::path& file) {
  ModelConfig config{.file = file};
  if (node["defaults"]) {
    YamlOptions options = option_values(node["defaults"], file, "defaults.");
    config.defaults = std::move(options.values);
    config.places = std::move(options.places);
  }
  config.presets = presets_of(node, file, "presets");
  config.few_steps = presets_of(node, file, "few_steps");
  for (const auto& [name, options] : config.few_steps)
    if (!config.presets.contains(name))
      throw bad_yaml(file, node["few_steps"].Mark(), "few_steps." + name + " has no counterpart in presets",
                     "add it to presets too, or leave it out");
  for (const auto& row : node["distilled"]) config.distilled.push_back(distilled_row(row, file));
  return config;
}

bool fits(const std::map<std::string, std::string>& match, const ModelSpec& model) {
  std::map<std::string, std::string> actual = model.fingerprint;
  actual["class"] = model.transformer_class;
  actual["layers"] = std::to_string(model.layers);
  actual["heads"] = std::to_string(model.heads);
  return std::ranges::all_of(match, [&](const auto& wanted) {
    const auto found = actual.find(wanted.first);
    return found != actual.end() && found->second == wanted.second;
  });
}

/// Parses a model's YAML, in which only `match` is required.
Architecture parse_model(const std::string& text, const fs::path& file) {
  const YAML::Node node = parse_model_config(text, file);
  Architecture model;
  model.config = options_of(node, file);
  for (const auto& entry : node["match"])
    model.match[entry.first.Scalar()] = entry.second.IsScalar() ? entry.second.Scalar() : "null";
  const YAML::Node architecture = node["architecture"], published = node["published"];
  if (architecture) {
    check_keys(architecture, file, "architecture.", architecture_keys(),
               "architecture has transformer, vae, text_encoder and scheduler");
    model.components = to_json(architecture);
  }
  if (const YAML::Node name = node["match"]["class"]; name && name.IsScalar()) model.transformer_class = name.Scalar();
  if (published) model.published = parse_published(published, file);
  return model;
}

/// Returns the parsed file. Opening a model reads all files of configs/ several times, so a result is kept as long as
/// the file's text does not change.
std::shared_ptr<const Architecture> parsed(const fs::path& file) {
  using Parsed = std::pair<std::string, std::shared_ptr<const Architecture>>;
  static std::mutex mutex;
  static std::map<fs::path, Parsed> known;
  const std::string text = read_text(file);
  const std::lock_guard lock(mutex);
  Parsed& last = known[file];
  if (last.second == nullptr || last.first != text)
    last = {text, std::make_shared<const Architecture>(parse_model(text, file))};
  return last.second;
}

/// Throws Error unless the YAML describes a complete model.
const Architecture& checked(const Architecture& model) {
  const fs::path& file = model.config.file;
  if (model.transformer_class.empty())
    throw bad_file(file, "match.class is missing", "name the transformer's class, as its config.json does");
  if (model.components.is_null())
    throw bad_file(file, "architecture is missing",
                   "give it transformer, vae, text_encoder and scheduler, each as its config.json has it");
  return model;
}

}  // namespace

YamlOptions parse_config(const std::string& text, const fs::path& path) {
  const YAML::Node node = parse(text, path);
  if (node.IsNull()) return {};
  require_map(node, path, "the file");
  return option_values(node, path, "");
}

YamlOptions read_config_file(const fs::path& path) {
  return parse_config(read_text(path), path);
}

std::optional<ModelConfig> match_model_config(const fs::path& file, const ModelSpec& model) {
  const auto known = parsed(file);
  if (!fits(known->match, model)) return std::nullopt;
  return known->config;
}

Architecture parse_architecture(const std::string& text, const fs::path& file) {
  return checked(parse_model(text, file));
}

Architecture read_architecture(const fs::path& file) {
  return checked(*parsed(file));
}

namespace {

std::vector<fs::path> configs_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::is_directory(folder)) {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<Architecture> architectures_in(const fs::path& folder) {
  std::vector<Architecture> all;
  for (const fs::path& file : configs_in(folder)) all.push_back(read_architecture(file));
  return all;
}

std::optional<ModelConfig> find_model_config(const fs::path& folder, const ModelSpec& model) {
  std::optional<ModelConfig> found;
  for (const fs::path& file : configs_in(folder)) {
    auto config = match_model_config(file, model);
    if (!config) continue;
    if (found)
      throw bad_input(found->file.string() + " and " + file.string() + " both match this checkpoint",
                      "make their match keys differ");
    found = std::move(config);
  }
  return found;
}

std::string missing_configs_warning(const fs::path& folder) {
  if (!configs_in(folder).empty()) return {};
  return folder.string() + " holds no model configs, so the defaults come from the checkpoint";
}

}  // namespace sparsereel::models
