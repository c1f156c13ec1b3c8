// Opens the headers of files and asks each family which parts they hold.
#include "models/store/checkpoint/found_parts.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>

#include "hilbert/error.h"
#include "models/files/config_fields.h"
#include "models/store/checkpoint/component.h"
#include "models/store/checkpoint/expert_name.h"
#include "models/store/checkpoint/expert_partner.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/model_tree.h"
#include "models/store/checkpoint/tokenizer_place.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

bool holds_a_tokenizer(const StoredWeights& weights, const Family& family) {
  const auto has_one = [](const auto& file) { return tokenizer_in(file).has_value(); };
  return std::ranges::any_of(weights.files, has_one) ||
         tokenizer_beside(weights.origin, family.part("tokenizer").published).has_value();
}

std::vector<FoundPart> parts_in(const StoredWeights& weights) {
  std::vector<FoundPart> parts = {};
  for (const Family& family : families()) {
    for (const Part& part : family.parts) {
      if (part.sizes_by_tensors == nullptr || first_of_its_kind(family, part.role) != part.role) continue;
      const Component component = component_of(weights, part);
      Sizes sizes = part.sizes_by_tensors(component.tensors);
      if (sizes.empty()) continue;
      FoundPart& found = parts.emplace_back(FoundPart{.file = weights.origin, .family = &family, .role = part.role});
      found.sizes = std::move(sizes);
      found.expert = expert_of_file(weights.origin);
      if (part.other_model != nullptr) found.other_model = part.other_model(component.tensors);
      found.format = format_of(component);
      found.bytes = component.bytes();
      found.has_tokenizer = part.role == "text_encoder" && holds_a_tokenizer(weights, family);
    }
  }
  return parts;
}

/// The parts of a file, and the state of the file when it was read.
struct KnownFile {
  std::optional<std::pair<dev_t, ino_t>> identity;
  fs::file_time_type changed;
  uintmax_t bytes = 0;
  bool is_lora = false;
  std::vector<FoundPart> parts = {};
};

/// Returns what the file holds. A run opens its model several times, so results are kept as long as the file does not
/// change.
KnownFile known_file(const fs::path& file) {
  static std::mutex mutex;
  static std::map<fs::path, KnownFile> known;
  const std::lock_guard lock(mutex);
  std::error_code ignored;
  const auto identity = identity_of(file);
  const auto changed = fs::last_write_time(file, ignored);
  const uintmax_t bytes = fs::file_size(file, ignored);
  const auto found = known.find(file);
  if (found != known.end() && found->second.identity == identity && found->second.changed == changed &&
      found->second.bytes == bytes)
    return found->second;
  const StoredWeights weights = open_weights(file);
  KnownFile read{.identity = identity, .changed = changed, .bytes = bytes, .is_lora = is_lora(weights.tensors)};
  if (!read.is_lora) read.parts = parts_in(weights);
  return known[file] = std::move(read);
}

void add_file(FoundParts& found, const fs::path& file) {
  try {
    const KnownFile known = known_file(file);
    if (known.parts.empty()) (known.is_lora ? found.loras : found.others).push_back(file);
    found.parts.insert(found.parts.end(), known.parts.begin(), known.parts.end());
  } catch (const Error& error) {
    found.unread.emplace_back(error.what());
  }
}

/// Returns the siblings of the folder `beside` whose names equal its name except for the word for the expert, which is
/// `expert`.
std::vector<fs::path> folders_of(const std::string& expert, const fs::path& beside) {
  std::error_code ignored;
  const fs::path own = fs::absolute(beside / "any", ignored).lexically_normal().parent_path();
  std::vector<fs::path> folders;
  if (expert_in_name(own.filename().string()).empty()) return folders;
  for (const auto& entry : fs::directory_iterator(own.parent_path(), ignored))
    if (entry.is_directory(ignored) && expert_in_name(entry.path().filename().string()) == expert &&
        name_without_expert(entry.path()) == name_without_expert(own))
      folders.push_back((beside / ".." / entry.path().filename()).lexically_normal());
  std::ranges::sort(folders);
  return folders;
}

}  // namespace

std::string first_of_its_kind(const Family& family, const std::string& role) {
  const std::vector<std::string>& classes = family.part(role).classes;
  return std::ranges::find(family.parts, classes, &Part::classes)->role;
}

std::vector<FoundPart> parts_of(const fs::path& file) {
  return parts_in(open_weights(file));
}

FoundParts find_parts(const fs::path& folder) {
  ModelTree tree = search_tree(folder);
  FoundParts found;
  found.tokenizers = std::move(tree.tokenizers);
  found.pipelines = std::move(tree.pipelines);
  found.whole = tree.whole;
  for (const fs::path& file : tree.weights) add_file(found, file);
  return found;
}

std::vector<FoundPart> parts_beside(const FoundPart& expert) {
  const std::string other = other_expert(expert.expert);
  const fs::path parent = expert.file.parent_path(), own = parent.empty() ? "." : parent;
  std::vector<fs::path> folders = folders_of(other, own);
  folders.insert(folders.begin(), own);
  FoundParts found;
  for (const fs::path& folder : folders)
    for (const fs::path& file : weights_in_folder(folder))
      if (expert_of_file(file) == other) add_file(found, file.lexically_normal());
  return std::move(found.parts);
}

fs::path file_of_role(const std::string& role, const fs::path& given) {
  const fs::path named = model_folder(given);
  std::error_code ignored;
  if (!fs::is_directory(named, ignored)) return named;
  const FoundParts found = find_parts(named);
  std::set<std::string> files;
  for (const FoundPart& part : found.parts) {
    const auto has_role = [&](const Part& each) { return each.role == role; };
    const auto& parts = part.family->parts;
    if (std::ranges::any_of(parts, has_role) && first_of_its_kind(*part.family, role) == part.role)
      files.insert(part.file.string());
  }
  if (files.size() == 1) return *files.begin();
  const std::vector<std::string> all(files.begin(), files.end());
  const std::string not_read = found.unread.empty() ? "" : "; not read: " + first_of(found.unread);
  std::vector<ErrorChoice> choices;
  for (const std::string& file : all) choices.push_back({.title = file, .values = {{role, file}}});
  throw bad_option(role,
                   named.string() + (all.empty() ? ": holds no " + role + not_read : ": could be " + first_of(all)),
                   "name the one file in it that holds the weights")
      .with_choices(std::move(choices));
}

}  // namespace sparsereel::models
