// Writes the errors about missing and ambiguous files.
#include "models/store/configs/model_errors.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "models/files/config_fields.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/tokenizer_place.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

std::string sizes_text(const Sizes& sizes) {
  std::vector<std::string> texts;
  for (const auto& [name, size] : sizes) texts.push_back(name + " " + std::to_string(size));
  return first_of(texts);
}

std::vector<std::string> names_of(const std::vector<FoundPart>& parts) {
  std::vector<std::string> names;
  for (const FoundPart& part : parts)
    if (std::ranges::count(names, part.file.string()) == 0) names.push_back(part.file.string());
  return names;
}

std::string not_read(const FoundParts& found) {
  std::string text = found.unread.empty() ? "" : "; not read: " + first_of(found.unread);
  if (!found.whole) text += "; the folder is too large, and not all of it was searched";
  return text;
}

std::vector<FoundPart> transformers(const Offered& offered) {
  std::vector<FoundPart> all;
  for (const char* role : {kTransformer, kSecondTransformer})
    if (const auto named = offered.named.find(role); named != offered.named.end())
      all.insert(all.end(), named->second.begin(), named->second.end());
  if (!all.empty()) return all;
  std::ranges::copy_if(offered.found.parts, std::back_inserter(all),
                       [](const FoundPart& part) { return part.role == kTransformer; });
  return all;
}

Error no_transformer(const fs::path& model, const Offered& offered) {
  const std::vector<FoundPart> all = transformers(offered);
  for (const FoundPart& part : all)
    if (!part.other_model.empty()) return unsupported_part(part.file, part.role, part.other_model);
  if (offered.named.contains(kTransformer) && offered.named.contains(kSecondTransformer))
    return bad_option(kSecondTransformer,
                      offered.named.at(kSecondTransformer).front().file.string() + ": belongs to another model than " +
                          offered.named.at(kTransformer).front().file.string(),
                      "name the two transformers of one model");
  if (!all.empty())
    return bad_file(all.front().file, "is a transformer of an unknown model: " + sizes_text(all.front().sizes),
                    "use a transformer of a model that configs/ describes");
  const std::string holds = offered.found.parts.empty() ? "" : ", but " + list_of(names_of(offered.found.parts));
  return bad_file(model, "holds no transformer of a known model" + holds + not_read(offered.found),
                  "give a folder in diffusers' layout, or a folder whose files hold a transformer");
}

bool is_alone(const Candidate& candidate) {
  return std::ranges::any_of(candidate.missing,
                             [](const auto& role) { return role == kTransformer || role == kSecondTransformer; });
}

const FoundPart& main_part(const Candidate& candidate) {
  const auto first = candidate.parts.find(kTransformer);
  return first == candidate.parts.end() ? candidate.parts.at(kSecondTransformer) : first->second;
}

Error lone_expert(const Candidate& candidate, const Offered& offered) {
  const FoundPart& part = main_part(candidate);
  const bool high = part.expert == "high";
  const std::string which =
      part.expert.empty() ? "one of two transformers" : "the transformer for " + part.expert + " noise";
  return bad_file(part.file, "is " + which + ", but the other transformer is missing" + not_read(offered.found),
                  "put the other file beside this one, or name it by " +
                      std::string(high ? kSecondTransformer : kTransformer) +
                      (high ? "" : ", and this one by " + std::string(kSecondTransformer)));
}

Error missing_parts(const Candidate& candidate, const Offered& offered) {
  std::vector<std::string> others;  // files that have a missing role but belong to another model
  for (const FoundPart& part : offered.found.parts)
    if (std::ranges::count(candidate.missing, part.role) > 0)
      others.push_back(part.file.string() + " (" + sizes_text(part.sizes) + ")");
  std::string problem = "is the transformer of " + candidate.model + ", but the model's " + every(candidate.missing) +
                        (candidate.missing.size() > 1 ? " are" : " is") + " missing";
  if (!others.empty()) problem += "; of another model: " + first_of(others);
  return bad_file(main_part(candidate).file, problem + not_read(offered.found),
                  "give files for " + every(candidate.missing) +
                      ", or put all files of the model into one folder and give that folder as the model");
}

/// Returns the error for the case that several candidates are incomplete. It says what each lacks.
Error several_without_parts(const fs::path& model, const std::vector<Candidate>& all, const Offered& offered) {
  std::vector<std::string> texts;
  std::set<std::string> roles;
  for (const Candidate& candidate : all) {
    texts.push_back(candidate.model + " of " + main_part(candidate).file.string() + " lacks " +
                    every(candidate.missing));
    roles.insert(candidate.missing.begin(), candidate.missing.end());
  }
  return bad_file(model, "holds no complete model: " + first_of(texts) + not_read(offered.found),
                  "give files for " + every({roles.begin(), roles.end()}) +
                      ", or put all files of the model into one folder and give that folder as the model");
}

std::string title_of(const Candidate& candidate, bool with_name) {
  std::vector<std::string> names;
  if (candidate.known == nullptr) names.push_back(candidate.pipeline.filename().string());
  for (const char* role : {kTransformer, kSecondTransformer})
    if (const auto part = candidate.parts.find(role); with_name && part != candidate.parts.end())
      names.push_back(part->second.file.filename().string());
  return candidate.format + ", " + in_gigabytes(candidate.bytes) + (names.empty() ? "" : ", " + every(names));
}

}  // namespace

std::string every(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

std::vector<ErrorChoice> choices_among(const std::vector<Candidate>& candidates) {
  std::vector<ErrorChoice> choices;
  for (const Candidate& candidate : candidates) {
    const auto is_like_it = [&](const Candidate& other) {
      return other.model == candidate.model && other.format == candidate.format;
    };
    choices.push_back({.group = candidate.model,
                       .title = title_of(candidate, std::ranges::count_if(candidates, is_like_it) > 1),
                       .values = values_of(candidate)});
  }
  std::ranges::stable_sort(choices, {}, &ErrorChoice::group);
  return choices;
}

Error no_tokenizer(const fs::path& model, const std::vector<Candidate>& candidates) {
  std::set<std::string> remedies;
  for (const Candidate& candidate : candidates)
    if (candidate.known != nullptr) remedies.insert(tokenizer_remedy(candidate.known->family->part("tokenizer")));
  std::string remedy;
  for (const std::string& each : remedies) remedy += (remedy.empty() ? "" : ", or ") + each;
  return bad_option("tokenizer", "is needed: there is none in " + model.string(), remedy);
}

Error several_models(const fs::path& model, const std::vector<Candidate>& candidates,
                     const std::vector<Candidate>& all) {
  std::set<std::string> names;
  std::set<std::vector<std::pair<std::string, std::string>>> values;
  for (const Candidate& candidate : candidates) {
    names.insert(candidate.known == nullptr ? candidate.model : candidate.known->architecture.config.file.string());
    values.insert(values_of(candidate));
  }
  if (values.size() == 1)
    return bad_input(model.string() + " fits " + (names.size() == 2 ? "two" : std::to_string(names.size())) +
                         " files of configs/: " + list_of({names.begin(), names.end()}),
                     "make the sizes of these models' architectures differ in their YAML files");
  std::vector<std::string> others;
  for (const Candidate& candidate : all)
    if (std::ranges::none_of(candidates, [&](const Candidate& each) { return each.is(candidate); }))
      others.push_back(candidate.model + " " + candidate.format);
  const std::string more =
      others.empty() ? "" : ", not counting those that lack a part or do not fit the request: " + first_of(others);
  return bad_file(model, "could be run in " + std::to_string(candidates.size()) + " ways" + more,
                  "choose one of these, by the files that it names")
      .with_choices(choices_among(candidates));
}

Error several_tokenizers(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::vector<ErrorChoice> choices;
  for (const fs::path& folder : folders) {
    names.push_back(folder.string());
    choices.push_back({.title = folder.string(), .values = {{"tokenizer", folder.string()}}});
  }
  return bad_option("tokenizer", "could be " + list_of(names), "name one folder by tokenizer")
      .with_choices(std::move(choices));
}

Error one_file_for_two(const fs::path& file) {
  return bad_option(
      kSecondTransformer, file.string() + ": is also the file of " + kTransformer,
      "give the file for low noise as transformer_2, and the file for high noise as " + std::string(kTransformer));
}

Error no_model(const fs::path& model, const Offered& offered, const std::vector<Candidate>& all) {
  if (all.empty()) return no_transformer(model, offered);
  if (all.size() > 1) return several_without_parts(model, all, offered);
  return is_alone(all.front()) ? lone_expert(all.front(), offered) : missing_parts(all.front(), offered);
}

}  // namespace sparsereel::models
