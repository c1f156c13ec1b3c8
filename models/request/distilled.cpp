// Chooses among the rows of a model's file by the names of the run's LoRAs and transformers.
#include "models/request/distilled.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "hilbert/error.h"
#include "models/request/settings.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Publishers often name the method in the second folder above the file.
constexpr int kNamedLevels = 3;

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Returns the files of the LoRAs that the run adds.
std::vector<fs::path> loras_of(const ModelConfig& config, const Settings& settings) {
  std::vector<fs::path> files = files_in(ValueKind::loras, settings.text("lora", ""));
  files.insert(files.end(), config.loras.begin(), config.loras.end());
  return files;
}

/// Returns the LoRAs, the transformers and the model's folder.
std::vector<fs::path> weights_of(const ModelConfig& config, const Settings& settings) {
  std::vector<fs::path> files = loras_of(config, settings);
  for (const char* key : {"transformer", "transformer_2", "model"})
    if (const auto file = settings.text(key)) files.emplace_back(*file);
  return files;
}

bool is_named(const Distilled& row, const fs::path& weights) {
  std::string name;
  fs::path rest = weights.lexically_normal();
  for (int level = 0; level < kNamedLevels && rest.has_filename(); ++level, rest = rest.parent_path())
    name += rest.filename().string() + "/";
  name = lowered(name);
  return std::ranges::any_of(row.words, [&](const std::string& word) { return name.find(word) != std::string::npos; });
}

bool is_named(const Distilled& row, const std::vector<fs::path>& weights) {
  return std::ranges::any_of(weights, [&](const fs::path& each) { return is_named(row, each); });
}

std::string listed_steps(const ModelConfig& config) {
  std::set<int64_t> all;
  for (const Distilled& row : config.distilled) all.insert(row.steps);
  std::string text;
  for (const int64_t steps : all) text += (text.empty() ? "" : " or ") + std::to_string(steps);
  return text;
}

Error unknown_steps(const ModelConfig& config, const Settings& settings, const std::string& given) {
  const std::string own = "give the scheduler, sigmas, flow_shift and cfg_scale that your model was distilled for";
  if (config.distilled.empty()) return bad_option("distilled", given + ": no settings are known for this model", own);
  return bad_option(
      "distilled", given + ": no settings are known for this number of steps",
      "give " + settings.options().words().name("distilled") + " " + listed_steps(config) + ", or " + own);
}

std::string names_of(const std::vector<std::string>& loras) {
  std::string text;
  for (const std::string& lora : loras) text += (text.empty() ? "" : " and ") + lora;
  return text;
}

}  // namespace

YamlOptions distilled_options(const ModelConfig& config, const Settings& settings) {
  const auto given = settings.text("distilled");
  if (!given) return {};
  const std::vector<fs::path> weights = weights_of(config, settings);
  const Distilled* first = nullptr;
  for (const Distilled& row : config.distilled) {
    if (row.steps != settings.whole("distilled")) continue;
    if (is_named(row, weights)) return row.options;
    if (first == nullptr) first = &row;
  }
  if (first == nullptr) throw unknown_steps(config, settings, *given);
  if (loras_of(config, settings).empty())
    throw bad_option("distilled", *given + ": no LoRA is given, and the model's name does not say that it is distilled",
                     "download " + names_of(first->loras) + " of " + first->repository + ", and name it with " +
                         settings.options().words().name("lora"));
  return first->options;
}

const Distilled* distilled_as(const ModelConfig& config, const fs::path& weights) {
  const auto found =
      std::ranges::find_if(config.distilled, [&](const Distilled& row) { return is_named(row, weights); });
  return found == config.distilled.end() ? nullptr : &*found;
}

std::string distilled_warning(const ModelConfig& config, const Settings& settings) {
  if (settings.has("distilled")) return {};
  for (const char* key : {"steps", "sigmas"})
    if (const Setting* setting = settings.find(key); setting != nullptr && setting->source > Source::distilled)
      return {};
  for (const fs::path& file : weights_of(config, settings))
    if (const Distilled* row = distilled_as(config, file))
      return file.filename().string() + " is named like a model that was distilled to " + std::to_string(row->steps) +
             " steps (" + row->name + "): give " + settings.options().words().name("distilled") + " " +
             std::to_string(row->steps);
  return {};
}

}  // namespace sparsereel::models
