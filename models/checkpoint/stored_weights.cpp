// Files of a checkpoint by themselves: JSON, and weights in one file or in shards.
#include "models/checkpoint/stored_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxJsonBytes = 100 << 20;
constexpr size_t kListed = 20;  // names of each kind in one error
// diffusers' name, then transformers', as the first part of a file's name. Behind it may stand which variant the file
// is: they are taken in this order where there is no file without any.
constexpr const char* kWeightFiles[] = {"diffusion_pytorch_model", "model"};
constexpr const char *kWeightEnding = ".safetensors", *kVariants[] = {"", ".bf16", ".fp16", ".fp32"};

/// Collects every complaint about a sharded component, so that one error can list them all.
class Disagreements {
 public:
  void add(const std::string& kind, const std::string& what) {
    auto& [count, text] = kinds_[kind];
    if (++count <= kListed) text += (count > 1 ? ", " : "") + what;
  }
  void throw_if_any(const std::string& file) const {
    if (kinds_.empty()) return;
    std::string cause = file + " disagrees with the files beside it:";
    const char* separator = " ";
    for (const auto& [kind, listed] : kinds_) {
      cause += separator + kind + " (" + std::to_string(listed.first) + "): " + listed.second;
      if (listed.first > kListed) cause += ", ...";
      separator = "; ";
    }
    throw Error(ErrorKind::bad_input, cause, kDownloadAgain, {.file = file});
  }

 private:
  std::map<std::string, std::pair<size_t, std::string>> kinds_;
};

StoredWeights open_shards(const fs::path& index_file) {
  StoredWeights weights{.origin = index_file};
  const auto weight_map = parse_weight_map(read_json(index_file), index_file.string());
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  Disagreements disagreements;
  std::set<std::string> missing_shards;
  for (const std::string& shard : shards) {
    const fs::path file = index_file.parent_path() / shard;
    if (!fs::exists(file)) {
      disagreements.add("missing shards", in_quotes(shard));
      missing_shards.insert(shard);
      continue;
    }
    const size_t number = weights.files.size();
    weights.files.push_back(std::make_shared<TensorFile>(file));
    for (const TensorEntry& entry : weights.files.back()->entries()) {
      const auto listed = weight_map.find(entry.name);
      if (listed == weight_map.end()) {
        disagreements.add("tensors that the index does not list", in_quotes(entry.name) + " in " + shard);
      } else if (listed->second == shard) {
        weights.tensors[entry.name] = {number, &entry};
      } else {
        disagreements.add("tensors in a shard that the index does not name for them",
                          in_quotes(entry.name) + " in " + shard);
      }
    }
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (!weights.tensors.contains(tensor) && !missing_shards.contains(shard))
      disagreements.add("tensors that their shard lacks", in_quotes(tensor) + " in " + shard);
  }
  disagreements.throw_if_any(index_file.string());
  return weights;
}

/// The weights are there, but not in a form that can be read: say which.
Error no_weights(const fs::path& folder) {
  std::string found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".safetensors") || name.ends_with(".pt") || name.ends_with(".ckpt") ||
        name.ends_with(".gguf"))
      found += (found.empty() ? "" : ", ") + name;
  }
  const std::string cause = std::string("no ") + kWeightFiles[0] + kWeightEnding + " or " + kWeightFiles[1] +
                            kWeightEnding + ", and no index of shards of either";
  if (found.empty()) return bad_file(folder, cause, kDownloadAgain);
  return bad_file(
      folder, cause + " (found " + found + ")",
      "rename a variant to that name, or export the model with diffusers' save_pretrained(safe_serialization=True)");
}

}  // namespace

json read_json(const fs::path& path, const std::string& given) {
  const std::string remedy = given.empty() ? kDownloadAgain : given;
  const std::string content = read_regular_file(path, kMaxJsonBytes, remedy);
  if (is_git_lfs_pointer(content)) throw bad_file(path, "is a Git LFS pointer", "run 'git lfs pull' in that folder");
  return parse_json(content, path.string(), remedy);
}

std::map<std::string, std::string> parse_weight_map(const json& index, const std::string& file) {
  const auto fail = [&](const std::string& what) { return bad_file(file, what, kDownloadAgain); };
  if (!index.is_object()) throw fail("is not a JSON object");
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) throw fail("weight_map is missing or not an object");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : found->items()) {
    if (!shard.is_string()) throw fail("weight_map " + in_quotes(tensor) + " is not a file name");
    const auto& name = shard.get_ref<const std::string&>();
    // An index must not reach outside of its folder.
    const bool plain = !name.empty() && name.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
                       name != "." && name != "..";
    if (!plain)
      throw fail("weight_map " + in_quotes(tensor) + ": " + in_quotes(name) +
                 " is not the name of a file in that folder");
    weight_map[tensor] = name;
  }
  if (weight_map.empty()) throw fail("weight_map is empty");
  return weight_map;
}

StoredWeights open_weights(const fs::path& file) {
  if (file.extension() == ".json") return open_shards(file);
  StoredWeights weights{.origin = file, .files = {std::make_shared<TensorFile>(file)}};
  for (const TensorEntry& entry : weights.files[0]->entries()) weights.tensors[entry.name] = {0, &entry};
  return weights;
}

/// A component's folder's one file, or the index of its shards.
fs::path weights_in(const fs::path& folder) {
  const auto exists = [](const fs::path& file) { return fs::exists(file); };
  for (const std::string variant : kVariants) {
    for (const std::string weights : kWeightFiles) {
      const std::string plain = (folder / weights).string() + kWeightEnding;
      const std::array<fs::path, 3> files = {(folder / weights).string() + variant + kWeightEnding,
                                             plain + ".index" + variant + ".json",  // as diffusers writes it
                                             plain + variant + ".index.json"};      // as it once did
      if (const auto found = std::ranges::find_if(files, exists); found != files.end()) return *found;
    }
  }
  throw no_weights(folder);
}

}  // namespace sparsereel::models
