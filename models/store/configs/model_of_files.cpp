// Finds the model that can be put together from a set of files.
#include "models/store/configs/model_of_files.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/checkpoint/model_tree.h"
#include "models/store/configs/candidates.h"
#include "models/store/configs/known_models.h"
#include "models/store/configs/model_errors.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

constexpr const char* kTokenizer = "tokenizer";

bool are_one_file(const FoundPart& first, const FoundPart& second) {
  std::error_code ignored;
  return fs::equivalent(first.file, second.file, ignored);
}

/// Returns the parts of this role, of any family, in the file that the user named, or in the only such file of the
/// folder that the user named. Throws Error if there are none.
std::vector<FoundPart> named_parts(const std::string& role, const fs::path& named) {
  const fs::path file = file_of_role(role, named);
  std::vector<FoundPart> parts = parts_of(file);
  std::erase_if(parts, [&](const FoundPart& part) {
    const auto has = [&](const Part& each) { return each.role == role; };
    return std::ranges::none_of(part.family->parts, has) || first_of_its_kind(*part.family, role) != part.role;
  });
  if (parts.empty())
    throw bad_option(role, file.string() + ": holds no " + role + " of a known model",
                     "name a file that holds the weights of a " + role);
  return parts;
}

/// Adds the files of the other expert that are near this expert's file (parts_beside()).
void add_partners(FoundParts& found, const FoundPart& expert) {
  if (expert.role != kTransformer || expert.expert.empty()) return;
  for (FoundPart& part : parts_beside(expert)) {
    const auto is_known = [&](const FoundPart& each) {
      return each.role == part.role && each.family == part.family && are_one_file(each, part);
    };
    if (std::ranges::none_of(found.parts, is_known)) found.parts.push_back(std::move(part));
  }
}

Offered offer(const fs::path& model, const Files& files) {
  Offered offered;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(model, ignored);
  if (is_folder)
    offered.found = find_parts(model);
  else
    offered.found.parts = parts_of(model);
  for (const auto& [role, file] : files) {
    if (file.empty()) continue;
    if (role == kTokenizer)
      offered.names_tokenizer = true;
    else
      offered.named[role] = named_parts(role, file);
  }
  // If the user gave a single file as the model, its transformer counts as named by the user.
  const bool names_none = !offered.named.contains(kTransformer) && !offered.named.contains(kSecondTransformer);
  if (!is_folder && names_none) {
    std::vector<FoundPart> own;
    std::ranges::copy_if(offered.found.parts, std::back_inserter(own),
                         [](const FoundPart& part) { return part.role == kTransformer; });
    if (!own.empty()) offered.named[kTransformer] = std::move(own);
  }
  for (const char* role : {kTransformer, kSecondTransformer})
    if (const auto named = offered.named.find(role); named != offered.named.end())
      for (const FoundPart& part : named->second) add_partners(offered.found, part);
  return offered;
}

void check_named_experts(const Offered& offered) {
  const auto first = offered.named.find(kTransformer), second = offered.named.find(kSecondTransformer);
  if (first == offered.named.end() || second == offered.named.end()) return;
  const FoundPart &high = first->second.front(), &low = second->second.front();
  if (are_one_file(high, low)) throw one_file_for_two(low.file);
  if (high.expert == "low" || low.expert == "high")
    throw bad_option(
        kTransformer,
        high.file.string() + ": by its name, this file or " + low.file.string() + " is the other transformer",
        "give the file for high noise as " + std::string(kTransformer) + ", and the file for low noise as " +
            kSecondTransformer);
}

/// Removes candidates that do not fit a request with images, or without images. If no candidate fits, keeps all.
void keep_those_for_images(std::vector<Candidate>& candidates, bool with_images) {
  const auto fits = [&](const Candidate& candidate) {
    return with_images ? candidate.images.any() : !candidate.images.needed;
  };
  if (std::ranges::any_of(candidates, fits)) std::erase_if(candidates, [&](const auto& each) { return !fits(each); });
}

/// If the user named exactly one of two experts, returns it; otherwise returns null.
const FoundPart* named_expert(const Offered& offered) {
  const auto first = offered.named.find(kTransformer), second = offered.named.find(kSecondTransformer),
             none = offered.named.end();
  if ((first == none) == (second == none)) return nullptr;
  return &(first == none ? second : first)->second.front();
}

/// Returns the files that were chosen for a candidate's parts. `ways` is the number of candidates that were found.
std::vector<ChosenFile> choices_of(const Candidate& candidate, const Offered& offered, size_t ways) {
  std::vector<ChosenFile> choices;
  const FoundPart* named = named_expert(offered);
  const bool names_none = !offered.named.contains(kTransformer) && !offered.named.contains(kSecondTransformer);
  for (const std::string& role : candidate.roles()) {
    const FoundPart& part = candidate.parts.at(role);
    ChosenFile& choice = choices.emplace_back(ChosenFile{.role = role, .path = part.file});
    if (role == kTransformer && names_none) choice.found = ways;
    if (const auto all = candidate.fitting.find(role); all != candidate.fitting.end())
      choice.found = all->second.size();
    choice.is_partner =
        named != nullptr && (role == kTransformer || role == kSecondTransformer) && part.file != named->file;
  }
  return choices;
}

Checkpoint open_candidate(const Candidate& candidate, const fs::path& model, const Files& named) {
  if (candidate.known == nullptr) return Checkpoint::open(candidate.pipeline);
  const auto first = candidate.parts.find(kTransformer), second = candidate.parts.find(kSecondTransformer);
  if (second != candidate.parts.end() && are_one_file(first->second, second->second))
    throw one_file_for_two(second->second.file);
  std::map<std::string, fs::path> files;
  for (const auto& [role, part] : candidate.parts) files[role] = part.file;
  if (!candidate.tokenizer.empty()) files[kTokenizer] = candidate.tokenizer;
  const Architecture& architecture = candidate.known->architecture;
  Checkpoint checkpoint = Checkpoint::of_files(model, architecture.config.file, architecture.transformer_class,
                                               architecture.components, files);
  // `named` may also have a tokenizer, or a role that this model does not have. For the latter, replace() throws Error.
  for (const auto& [role, file] : named)
    if (!file.empty() && !candidate.parts.contains(role)) checkpoint.replace(role, file);
  return checkpoint;
}

Checkpoint open_best(const fs::path& model, const Files& named, Offered& offered, const fs::path& configs,
                     std::optional<bool> with_images) {
  check_named_experts(offered);
  std::vector<Candidate> all = candidates_of(offered, configs), usable = all;
  std::erase_if(usable, [](const Candidate& each) { return !each.is_complete(); });
  if (with_images) keep_those_for_images(usable, *with_images);
  const auto lacks_tokenizer = [](const Candidate& each) { return each.lacks_tokenizer; };
  if (!std::ranges::all_of(usable, lacks_tokenizer)) std::erase_if(usable, lacks_tokenizer);
  if (usable.empty()) throw no_model(model, offered, all);
  if (usable.size() > 1 && usable.front().lacks_tokenizer) throw no_tokenizer(model, usable);
  if (usable.size() > 1) throw several_models(model, usable, all);
  if (usable.front().tokenizers.size() > 1) throw several_tokenizers(usable.front().tokenizers);
  Checkpoint checkpoint = open_candidate(usable.front(), model, named);
  if (usable.front().known != nullptr) checkpoint.set_choices(choices_of(usable.front(), offered, all.size()));
  return checkpoint;
}

}  // namespace

std::map<std::string, std::vector<fs::path>> models_of_file(const fs::path& configs, const fs::path& file) {
  std::map<std::string, std::vector<fs::path>> models;
  const std::vector<FoundPart> parts = parts_of(file);
  if (parts.empty()) return models;
  for (const KnownModel& known : known_models(configs))
    for (const FoundPart& part : parts)
      if (known.fits(part)) models[part.role].push_back(known.architecture.config.file);
  return models;
}

bool is_searched(const fs::path& named) {
  const fs::path model = model_folder(named);
  std::error_code ignored;
  return fs::is_directory(model, ignored) && !fs::exists(model / "model_index.json", ignored);
}

Checkpoint open_model(const fs::path& named, const Files& files, const fs::path& configs,
                      std::optional<bool> with_images) {
  const fs::path model = model_folder(named);
  std::error_code ignored;
  if (!is_searched(model) && !fs::is_regular_file(model, ignored)) return Checkpoint::open(model);
  Offered offered = offer(model, files);
  const FoundParts& found = offered.found;
  if (found.parts.empty() && found.unread.empty() && found.pipelines.empty() && offered.named.empty())
    return Checkpoint::open(model);  // throws an Error that says what the folder lacks
  return open_best(model, files, offered, configs, with_images);
}

}  // namespace sparsereel::models
