// Opens files' headers and asks each family what they are.
#include "models/checkpoint/found_parts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <set>
#include <system_error>

#include "hilbert/error.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/expert_name.h"
#include "models/checkpoint/tokenizer_place.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

// Folders of ComfyUI, of repositories of its files, and of the models' authors; those that name an expert besides.
constexpr std::array kFolders = {
    "split_files", "all_in_one",  "diffusion_models", "unet",      "text_encoders", "text_encoder", "clip",
    "vae",         "clip_vision", "checkpoints",      "tokenizer", "google",        "umt5-xxl"};
constexpr int kDeepest = 3;

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool is_searched(const fs::path& folder) {
  const std::string name = lowered(folder.filename().string());
  return std::ranges::find(kFolders, name) != kFolders.end() || !expert_in_name(name).empty();
}

bool ends_with_one_of(const fs::path& file, std::initializer_list<const char*> endings) {
  const std::string name = lowered(file.filename().string());
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

bool holds_weights(const fs::path& file) {
  return ends_with_one_of(file, {".safetensors", ".gguf", ".pth", ".pt", ".safetensors.index.json"});
}

/// What may hold weights where a folder has no others: such files also hold a trainer's state, or the same weights
/// once more.
bool may_hold_weights(const fs::path& file) {
  return ends_with_one_of(file, {".bin", ".ckpt", ".bin.index.json"});
}

std::vector<fs::path> listed(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

/// Shards are no files of their own where their index is beside them.
std::set<std::string> shards_in(const std::vector<fs::path>& paths) {
  std::set<std::string> shards;
  for (const fs::path& path : paths) {
    if (path.extension() != ".json" || !(holds_weights(path) || may_hold_weights(path))) continue;
    try {
      for (const auto& [tensor, shard] : parse_weight_map(read_json(path), path.string())) shards.insert(shard);
    } catch (const Error&) {  // reading it says so
    }
  }
  return shards;
}

void search(FoundParts& found, const fs::path& folder, int depth) {
  std::error_code ignored;
  const std::vector<fs::path> paths = listed(folder);
  const std::set<std::string> shards = shards_in(paths);
  if (holds_tokenizer(folder)) found.tokenizers.push_back(folder);
  const bool others = std::ranges::none_of(paths, holds_weights);
  for (const fs::path& path : paths) {
    if (fs::is_directory(path, ignored)) {
      if (depth < kDeepest && is_searched(path)) search(found, path, depth + 1);
    } else if ((holds_weights(path) || (others && may_hold_weights(path))) &&
               !shards.contains(path.filename().string())) {
      try {
        std::ranges::move(parts_of(path), std::back_inserter(found.parts));
      } catch (const Error& error) {
        found.unread.emplace_back(error.what());
      }
    }
  }
}

}  // namespace

std::string first_of_its_kind(const Family& family, const std::string& role) {
  const std::vector<std::string>& classes = family.part(role).classes;
  return std::ranges::find(family.parts, classes, &Part::classes)->role;
}

std::vector<FoundPart> parts_of(const fs::path& file) {
  const StoredWeights weights = open_weights(file);
  const std::string expert = expert_of_file(file);
  std::vector<FoundPart> parts;
  for (const Family& family : families()) {
    for (const Part& part : family.parts) {
      if (part.sizes_by_tensors == nullptr || first_of_its_kind(family, part.role) != part.role) continue;
      const Component component = component_of(weights, part);
      Sizes sizes = part.sizes_by_tensors(component.tensors);
      if (sizes.empty()) continue;
      parts.push_back(
          {.file = file, .family = &family, .role = part.role, .sizes = std::move(sizes), .expert = expert});
      if (part.other_model != nullptr) parts.back().other_model = part.other_model(component.tensors);
    }
  }
  return parts;
}

FoundParts find_parts(const fs::path& folder) {
  FoundParts found;
  search(found, folder, 0);
  return found;
}

fs::path file_of_role(const std::string& role, const fs::path& named) {
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
  throw bad_option(role,
                   named.string() + (all.empty() ? ": holds no " + role + not_read : ": could be " + list_of(all)),
                   "name the one file of the weights in it");
}

}  // namespace sparsereel::models
