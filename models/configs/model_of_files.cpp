// Finds the one model whose parts the files are.
#include "models/configs/model_of_files.h"

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/checkpoint/family.h"
#include "models/checkpoint/found_parts.h"
#include "models/configs/config_file.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, fs::path>;

constexpr const char *kFirst = "transformer", *kSecond = "transformer_2", *kTokenizer = "tokenizer";

/// A model of configs/, and what its parts' tensors would show.
struct Known {
  Architecture architecture;
  const Family* family = nullptr;
  std::map<std::string, Sizes> sizes = {};  // by role, of those with weights

  bool has_experts() const { return sizes.contains(kSecond); }
  bool fits(const FoundPart& part) const {
    const auto own = sizes.find(part.role);
    return part.family == family && part.other_model.empty() && own != sizes.end() &&
           std::ranges::includes(own->second, part.sizes);
  }
};

std::vector<Known> known_models(const fs::path& configs) {
  std::vector<Known> all;
  for (Architecture& architecture : architectures_in(configs)) {
    const auto has_class = [&](const Family& family) {
      return std::ranges::count(family.part(kFirst).classes, architecture.transformer_class) > 0;
    };
    const auto family = std::ranges::find_if(families(), has_class);
    if (family == families().end()) continue;
    Known known{.architecture = std::move(architecture), .family = &*family};
    for (const Part& part : family->parts) {
      const auto config = known.architecture.components.find(part.role);
      if (part.sizes_by_config != nullptr && config != known.architecture.components.end())
        known.sizes[part.role] = part.sizes_by_config(*config, known.architecture.config.file.string());
    }
    all.push_back(std::move(known));
  }
  return all;
}

std::vector<std::string> names_of(const std::vector<FoundPart>& parts) {
  std::vector<std::string> names;
  for (const FoundPart& part : parts)
    if (std::ranges::count(names, part.file.string()) == 0) names.push_back(part.file.string());
  return names;
}

std::string text_of(const Sizes& sizes) {
  std::vector<std::string> texts;
  for (const auto& [name, size] : sizes) texts.push_back(name + " " + std::to_string(size));
  return first_of(texts);
}

bool are_one_file(const FoundPart& first, const FoundPart& second) {
  std::error_code ignored;
  return fs::equivalent(first.file, second.file, ignored);
}

/// What is there, and the choice among it.
class Sorting {
 public:
  Sorting(fs::path model, const std::map<std::string, std::string>& files, const fs::path& configs)
      : model_(std::move(model)), files_(files), known_(known_models(configs)) {
    std::error_code ignored;
    if (fs::is_directory(model_, ignored))
      found_ = find_parts(model_);
    else
      found_.parts = parts_of(model_);
    for (const FoundPart& part : found_.parts)
      if (part.role == kFirst) transformers_.push_back(part);
    for (const auto& [role, file] : files_)
      if (!file.empty() && role != kTokenizer) picked_[role] = pick(role, file);
    pick_transformers();
  }

  bool found_nothing() const { return found_.parts.empty() && found_.unread.empty() && picked_.empty(); }

  Checkpoint checkpoint() {
    Files files = choose_transformers();
    const Known& known = the_model();
    for (const auto& [role, sizes] : known.sizes)
      if (role != kFirst && role != kSecond) choose(role, known, files);
    choose_tokenizer(files);
    refuse_missing(known, files);
    const Architecture& architecture = known.architecture;
    return Checkpoint::of_files(model_, architecture.config.file, architecture.transformer_class,
                                architecture.components, files);
  }

 private:
  /// What the file, or the one in the folder, is of this role, of whatever family.
  std::vector<FoundPart> pick(const std::string& role, const fs::path& named) {
    const fs::path file = file_of_role(role, named);
    std::vector<FoundPart> parts = parts_of(file);
    std::erase_if(parts, [&](const FoundPart& part) {
      const auto has = [&](const Part& each) { return each.role == role; };
      return std::ranges::none_of(part.family->parts, has) || first_of_its_kind(*part.family, role) != part.role;
    });
    if (parts.empty())
      throw bad_option(role, file.string() + ": holds no " + role + " of a known model",
                       "name a file with these weights");
    return parts;
  }

  /// Those that are named are the only ones, but for the other of two experts.
  void pick_transformers() {
    const auto first = picked_.find(kFirst), second = picked_.find(kSecond);
    if (first == picked_.end() && second == picked_.end()) return;
    std::vector<FoundPart> all;
    const auto add = [&](const auto& picked, const char* expert) {
      if (picked != picked_.end()) all.insert(all.end(), picked->second.begin(), picked->second.end());
      for (const FoundPart& part : transformers_)
        if (picked == picked_.end() && part.expert == expert) all.push_back(part);
    };
    add(first, "high");
    if (second != picked_.end() || first->second.front().expert == "high") add(second, "low");
    transformers_ = std::move(all);
  }

  std::vector<const Known*> that_fit(const FoundPart& part, bool experts) const {
    std::vector<const Known*> fitting;
    for (const Known& known : known_)
      if (known.has_experts() == experts && known.fits(part)) fitting.push_back(&known);
    return fitting;
  }

  Files choose_transformers() {
    std::vector<FoundPart> usable;
    for (const FoundPart& part : transformers_)
      if (!that_fit(part, true).empty() || !that_fit(part, false).empty()) usable.push_back(part);
    if (usable.empty()) throw no_transformer();
    if (usable.size() == 1) {
      const FoundPart& only = usable.front();
      const bool is_expert = !that_fit(only, true).empty() && (!only.expert.empty() || that_fit(only, false).empty());
      if (is_expert) throw lone_expert(only);
      models_ = that_fit(only, false);
      return {{kFirst, only.file}};
    }
    if (usable.size() == 2 && picked_.contains(kFirst) && picked_.contains(kSecond))
      return experts(usable[0], usable[1]);
    if (usable.size() == 2 && usable[0].expert == "low") std::swap(usable[0], usable[1]);
    const bool told = usable.size() == 2 && usable[0].expert == "high" && usable[1].expert == "low";
    if (!told || that_fit(usable[0], true).empty() || that_fit(usable[1], true).empty()) {
      throw bad_option(kFirst, "could be " + list_of(names_of(usable)),
                       "name one file by " + std::string(kFirst) +
                           "; of a model of two experts that for high noise, and by " + kSecond +
                           " that for low noise");
    }
    return experts(usable[0], usable[1]);
  }

  Files experts(const FoundPart& high, const FoundPart& low) {
    if (are_one_file(high, low))
      throw bad_option(kSecond, low.file.string() + ": is the file of " + kFirst + " too",
                       "name the file for low noise, and by " + std::string(kFirst) + " that for high noise");
    if (high.expert == "low" || low.expert == "high")
      throw bad_option(
          kFirst,
          high.file.string() + ": by their names this or " + low.file.string() + " is the other one of two experts",
          std::string(kFirst) + " is the one for high noise, " + kSecond + " the one for low noise");
    models_ = that_fit(high, true);
    std::erase_if(models_, [&](const Known* known) { return !known->fits(low); });
    if (models_.empty())
      throw bad_option(kSecond, low.file.string() + ": is of another model than " + high.file.string(),
                       "name two experts of one model");
    return {{kFirst, high.file}, {kSecond, low.file}};
  }

  const Known& the_model() const {
    if (models_.size() == 1) return *models_.front();
    std::vector<std::string> names;
    for (const Known* known : models_) names.push_back(known->architecture.config.file.string());
    throw bad_input(model_.string() + ": fits " + list_of(names), "make the sizes of their architectures differ");
  }

  void choose(const std::string& role, const Known& known, Files& files) {
    if (const auto picked = picked_.find(role); picked != picked_.end()) {
      files[role] = picked->second.front().file;
      return;
    }
    std::vector<FoundPart> fitting;
    for (const FoundPart& part : found_.parts)
      if (part.role == role && known.fits(part)) fitting.push_back(part);
    if (fitting.size() > 1)
      throw bad_option(role, "could be " + list_of(names_of(fitting)), "name one file by " + role);
    if (!fitting.empty()) files[role] = fitting.front().file;
  }

  void choose_tokenizer(Files& files) {
    const auto named = files_.find(kTokenizer);
    if (named != files_.end() && !named->second.empty()) return;  // it is put in the place of any other
    std::vector<std::string> all;
    for (const fs::path& folder : found_.tokenizers) all.push_back(folder.string());
    if (all.size() > 1)
      throw bad_option(kTokenizer, "could be " + list_of(all), "name one folder by " + std::string(kTokenizer));
    if (!all.empty()) files[kTokenizer] = all.front();
  }

  void refuse_missing(const Known& known, const Files& files) const {
    std::vector<std::string> missing;
    for (const Part& part : known.family->parts) {
      if (known.sizes.contains(part.role) && !files.contains(part.role)) missing.push_back(part.role);
    }
    if (missing.empty()) return;
    std::vector<std::string> others;  // of the missing roles, but of another model
    for (const FoundPart& part : found_.parts)
      if (std::ranges::count(missing, part.role) > 0)
        others.push_back(part.file.string() + " (" + text_of(part.sizes) + ")");
    std::string problem = "is the transformer of " + known.architecture.config.file.stem().string() +
                          ", but the model's " + every(missing) + (missing.size() > 1 ? " are" : " is") + " missing";
    if (!others.empty()) problem += "; of another model: " + first_of(others);
    throw bad_file(files.at(kFirst), problem + not_read(),
                   "name files by " + every(missing) + ", or put all into one folder and give that as the model");
  }

  static std::string every(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
    return text;
  }

  std::string not_read() const { return found_.unread.empty() ? "" : "; not read: " + first_of(found_.unread); }

  Error no_transformer() const {
    for (const FoundPart& part : transformers_)
      if (!part.other_model.empty()) return unsupported_part(part.file, part.role, part.other_model);
    if (!transformers_.empty()) {
      const FoundPart& part = transformers_.front();
      return bad_file(part.file, "is a transformer of no known model: " + text_of(part.sizes),
                      "use one of a model that configs/ describes");
    }
    const std::string holds = found_.parts.empty() ? "" : ", but " + list_of(names_of(found_.parts));
    return bad_file(model_, "holds no transformer of a known model" + holds + not_read(),
                    "give a folder in diffusers' layout, or one of files that holds a transformer");
  }

  Error lone_expert(const FoundPart& part) const {
    const bool high = part.expert == "high";
    const std::string which = part.expert.empty() ? "one of two experts" : "the expert for " + part.expert + " noise";
    return bad_file(part.file, "is " + which + ", and the other one is missing" + not_read(),
                    "put it beside this one, or name it by " + std::string(high ? kSecond : kFirst) +
                        (high ? "" : ", and this one by " + std::string(kSecond)));
  }

  fs::path model_;
  const std::map<std::string, std::string>& files_;
  std::vector<Known> known_;
  FoundParts found_ = {};
  std::vector<FoundPart> transformers_ = {};
  std::map<std::string, std::vector<FoundPart>> picked_ = {};
  std::vector<const Known*> models_ = {};  // whose transformers were chosen
};

}  // namespace

std::map<std::string, std::vector<fs::path>> models_of_file(const fs::path& configs, const fs::path& file) {
  std::map<std::string, std::vector<fs::path>> models;
  const std::vector<FoundPart> parts = parts_of(file);
  if (parts.empty()) return models;
  for (const Known& known : known_models(configs))
    for (const FoundPart& part : parts)
      if (known.fits(part)) models[part.role].push_back(known.architecture.config.file);
  return models;
}

Checkpoint open_model(const fs::path& model, const std::map<std::string, std::string>& files, const fs::path& configs) {
  std::error_code ignored;
  const bool folder = fs::is_directory(model, ignored);
  if (fs::exists(model / "model_index.json", ignored) || (!folder && !fs::is_regular_file(model, ignored)))
    return Checkpoint::open(model);
  Sorting sorting(model, files, configs);
  if (sorting.found_nothing()) return Checkpoint::open(model);  // says what it lacks
  return sorting.checkpoint();
}

}  // namespace sparsereel::models
