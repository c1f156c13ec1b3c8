// The table of model families and its queries.
#include "models/store/checkpoint/family.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

namespace sparsereel::models {
namespace {

std::vector<Family>& table() {
  static std::vector<Family> rows = published_families();
  return rows;
}

}  // namespace

const std::vector<Family>& families() {
  return table();
}

Error unsupported_part(const std::filesystem::path& file, const std::string& role, const std::string& model) {
  return bad_file(file.string(), "is a " + role + " of " + model + ", which is not supported",
                  "use the weights of text to video");
}

void add_family(Family row) {
  table().push_back(std::move(row));
}

std::string tokenizer_of(const Part& part) {
  return part.published.empty() ? "the " + part.tokenizer_files + " of the text encoder"
                                : part.published + "'s " + part.tokenizer_files;
}

std::string tokenizer_remedy(const Part& part) {
  const std::string give = "give " + tokenizer_of(part);
  if (part.published.empty()) return give;
  std::string names;  // the words that are names of files, without "or" and commas
  std::istringstream words(part.tokenizer_files);
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos) names += word.substr(0, word.find(',')) + " ";
  return give + "; 'hf download " + part.published + " " + names + "--local-dir " + part.published + "' downloads it";
}

const Part& Family::part(std::string_view role) const {
  return *std::find_if(parts.begin(), parts.end(), [&](const Part& each) { return each.role == role; });
}

std::vector<std::string> Family::classes() const {
  std::vector<std::string> all = {pipeline_class};
  all.insert(all.end(), other_classes.begin(), other_classes.end());
  return all;
}

bool has_weights(std::string_view role) {
  return role != "scheduler" && role != kSoundScheduler && role != "tokenizer" && role != "image_processor" &&
         role != kProcessor;
}

const Family* find_family(std::string_view pipeline_class) {
  for (const Family& family : families())
    if (family.pipeline_class == pipeline_class || std::ranges::count(family.other_classes, pipeline_class) > 0)
      return &family;
  return nullptr;
}

std::vector<std::string> architecture_keys() {
  std::set<std::string> keys;
  for (const Family& family : families()) {
    for (const Part& part : family.parts) keys.insert(part.role);
    keys.insert(family.settings.begin(), family.settings.end());
  }
  keys.erase("tokenizer");
  return {keys.begin(), keys.end()};
}

std::vector<std::string> all_fingerprint_keys() {
  std::set<std::string> fingerprint;
  for (const Family& family : families()) fingerprint.insert(family.fingerprint.begin(), family.fingerprint.end());
  return {fingerprint.begin(), fingerprint.end()};
}

std::vector<SamplerSpec> all_samplers() {
  std::vector<SamplerSpec> all;
  for (const Family& family : families()) {
    for (const SamplerSpec& sampler : family.samplers) {
      const auto same = [&](const SamplerSpec& each) { return each.class_name == sampler.class_name; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(sampler);
    }
  }
  return all;
}

}  // namespace sparsereel::models
