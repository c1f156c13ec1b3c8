// Chooses a row of the section `distilled` by the names of the run's LoRAs and transformers.
#include "models/request/distilled.h"

#include <algorithm>
#include <set>
#include <vector>

#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "hilbert/read_text.h"
#include "models/request/lora_choice.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using OptionValues = std::map<std::string, std::string>;

/// How many components of a path are searched for the name of the distillation method: the file and two folders,
/// because publishers often name the method in the second folder above the file.
constexpr int kNamedLevels = 3;

/// Returns the files of the LoRAs that the run adds.
std::vector<fs::path> loras_of(const ModelConfig& config, const OptionValues& given) {
  std::vector<fs::path> files = config.loras;
  if (const auto text = given.find("lora"); text != given.end())
    for (const LoraChoice& lora : parse_loras(text->second)) files.push_back(lora.file);
  return files;
}

/// Returns the paths of the LoRAs, the transformers and the model.
std::vector<fs::path> weights_of(const ModelConfig& config, const OptionValues& given) {
  std::vector<fs::path> files = loras_of(config, given);
  for (const char* key : {"transformer", "transformer_2", "model"})
    if (const auto file = given.find(key); file != given.end()) files.emplace_back(file->second);
  return files;
}

bool is_named(const Distilled& row, const fs::path& weights) {
  std::string name;
  fs::path rest = weights.lexically_normal();
  if (!rest.has_filename()) rest = rest.parent_path();  // the name of a folder may end in a slash
  for (int level = 0; level < kNamedLevels && rest.has_filename(); ++level, rest = rest.parent_path())
    name += rest.filename().string() + "/";
  name = lower_case(name);
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

Error unknown_steps(const ModelConfig& config, const std::string& steps, const OptionList::Words& words) {
  const std::string own = "give the scheduler, sigmas, flow_shift and cfg_scale that your model was distilled for";
  if (config.distilled.empty()) return bad_option("distilled", steps + ": no settings are known for this model", own);
  return bad_option("distilled", steps + ": no settings are known for this number of steps",
                    "give " + words.name("distilled") + " " + listed_steps(config) + ", or " + own);
}

std::string names_of(const std::vector<std::string>& loras) {
  std::string text;
  for (const std::string& lora : loras) text += (text.empty() ? "" : " and ") + lora;
  return text;
}

/// Returns what the user must download, and the option that names it.
std::string download_of(const Distilled& row, const OptionList::Words& words) {
  if (row.loras.empty()) return row.repository + ", and name it with " + words.name("model");
  return names_of(row.loras) + " of " + row.repository +
         (row.loras.size() > 1 ? ", and name them with " : ", and name it with ") + words.name("lora");
}

}  // namespace

YamlOptions distilled_options(const ModelConfig& config, const OptionValues& given, const OptionList::Words& words) {
  const auto asked = given.find("distilled");
  if (asked == given.end()) return {};
  const std::string& steps = asked->second;
  const std::vector<fs::path> weights = weights_of(config, given);
  const Distilled* first = nullptr;
  for (const Distilled& row : config.distilled) {
    if (row.steps != parse_number<int64_t>(steps)) continue;
    if (is_named(row, weights)) return row.options;
    if (first == nullptr) first = &row;
  }
  if (first == nullptr) throw unknown_steps(config, steps, words);
  if (loras_of(config, given).empty() && !given.contains("random_weights"))
    throw bad_option("distilled", steps + ": no LoRA is given, and the model's name does not say that it is distilled",
                     "download " + download_of(*first, words));
  return first->options;
}

const Distilled* distilled_as(const ModelConfig& config, const fs::path& weights) {
  const auto found =
      std::ranges::find_if(config.distilled, [&](const Distilled& row) { return is_named(row, weights); });
  return found == config.distilled.end() ? nullptr : &*found;
}

std::string distilled_warning(const ModelConfig& config, const OptionValues& given, const OptionList::Words& words) {
  for (const char* key : {"distilled", "steps", "sigmas"})
    if (given.contains(key)) return {};
  for (const fs::path& file : weights_of(config, given))
    if (const Distilled* row = distilled_as(config, file))
      return file.filename().string() + " is named like a model that was distilled to " + std::to_string(row->steps) +
             " steps (" + row->name + "): give " + words.name("distilled") + " " + std::to_string(row->steps);
  return {};
}

}  // namespace sparsereel::models
