// Opens JSON files, single files of weights, shards and parts.
#include "models/store/checkpoint/stored_weights.h"

#include <algorithm>
#include <array>
#include <regex>
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
constexpr size_t kListed = 20;  // most names of each kind in one error
// Words for a variant, which follow the stem of a file's name. They are tried in this order.
constexpr const char* kVariants[] = {"", ".bf16", ".fp16", ".fp32"};
/// The file names of weights. The first stem is diffusers', the second transformers'. Files of torch.save() (.bin) come
/// last: some folders have all weights in both forms, and .safetensors is preferred.
struct WeightFiles {
  const char *ending, *stems[2];
};
constexpr WeightFiles kWeightFiles[] = {{".safetensors", {"diffusion_pytorch_model", "model"}},
                                        {".bin", {"diffusion_pytorch_model", "pytorch_model"}}};

/// Collects the complaints about shards or parts, so that one error lists them all.
class Disagreements {
 public:
  void add(const std::string& kind, const std::string& what) {
    auto& [count, text] = kinds_[kind];
    if (++count <= kListed) text += (count > 1 ? ", " : "") + what;
  }
  void throw_if_any(const std::string& file, const std::string& remedy = kDownloadAgain) const {
    if (kinds_.empty()) return;
    std::string cause = file + " disagrees with the files beside it:";
    const char* separator = " ";
    for (const auto& [kind, listed] : kinds_) {
      cause += separator + kind + " (" + std::to_string(listed.first) + "): " + listed.second;
      if (listed.first > kListed) cause += ", ...";
      separator = "; ";
    }
    throw Error(ErrorKind::bad_input, cause, remedy, {.file = file});
  }

 private:
  std::map<std::string, std::pair<size_t, std::string>> kinds_;
};

/// Adds the tensors of the last file of `weights`. If two shards have the same tensor, takes it from the shard that
/// `weight_map` names for it. If `weight_map` names neither, adds a complaint.
void add_tensors(StoredWeights& weights, const std::map<std::string, std::string>& weight_map,
                 Disagreements& disagreements) {
  const size_t number = weights.files.size() - 1;
  const std::string shard = weights.files.back()->path().filename().string();
  for (const TensorEntry& entry : weights.files.back()->entries()) {
    const auto [place, is_new] = weights.tensors.try_emplace(entry.name, number, &entry);
    if (is_new) continue;
    const std::string other = weights.files[place->second.first]->path().filename().string();
    const auto listed = weight_map.find(entry.name);
    if (listed != weight_map.end() && listed->second == shard)
      place->second = {number, &entry};
    else if (listed == weight_map.end() || listed->second != other)
      disagreements.add("tensors in two shards", in_quotes(entry.name) + " in " + other + " and " + shard);
  }
}

/// Opens the shards of an index. It is no error if only the index or only a shard names a tensor: loading reports the
/// tensor if the model needs it.
StoredWeights open_shards(const fs::path& index_file) {
  StoredWeights weights{.origin = index_file};
  const auto weight_map = parse_weight_map(read_json(index_file), index_file.string());
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  Disagreements disagreements;
  for (const std::string& shard : shards) {
    const fs::path file = index_file.parent_path() / shard;
    if (!fs::exists(file)) {
      disagreements.add("missing shards", in_quotes(shard));
      continue;
    }
    weights.files.push_back(std::make_shared<TensorFile>(file));
    add_tensors(weights, weight_map, disagreements);
  }
  disagreements.throw_if_any(index_file.string());
  return weights;
}

/// Opens all parts of a split file, given the name of one of them.
StoredWeights open_parts(const fs::path& file, const PartName& name) {
  StoredWeights weights{.origin = file};
  Disagreements disagreements;
  for (size_t number = 1; number <= name.count; ++number) {
    const fs::path part = file.parent_path() / name.of(number);
    if (!fs::exists(part)) {
      disagreements.add("missing parts", in_quotes(part.filename().string()));
      continue;
    }
    weights.files.push_back(std::make_shared<TensorFile>(part));
    add_tensors(weights, {}, disagreements);
  }
  disagreements.throw_if_any(
      file.string() + ", part " + std::to_string(name.number) + " of " + std::to_string(name.count) + ",",
      "put all parts into one folder, with the names under which they were published");
  return weights;
}

/// Throws Error if a split GGUF was opened without its other parts. The file stores the number of parts, but the others
/// can be found only if the file's name has the usual form.
void check_whole(const StoredWeights& weights) {
  constexpr const char* kCount = "split.count";
  for (const auto& file : weights.files) {
    const auto count = file->metadata().find(kCount);
    if (count == file->metadata().end() || count->second == "0" ||
        count->second == std::to_string(weights.files.size()))
      continue;
    throw bad_file(
        file->path(), "is one of " + count->second + " parts of a split GGUF (" + kCount + ")",
        "put all parts into one folder, call them model-00001-of-00002.gguf and so on, and give the first part");
  }
}

/// Returns the error for a folder whose weights are missing, or have names that are not supported.
Error no_weights(const fs::path& folder) {
  std::string found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".safetensors") || name.ends_with(".pt") || name.ends_with(".ckpt") ||
        name.ends_with(".gguf"))
      found += (found.empty() ? "" : ", ") + name;
  }
  std::string cause;
  for (const auto& [ending, stems] : kWeightFiles)
    for (const char* stem : stems) cause += (cause.empty() ? "no " : ", ") + std::string(stem) + ending;
  cause += ", and no index of shards";
  if (found.empty()) return bad_file(folder, cause, kDownloadAgain);
  return bad_file(folder, cause + " (found " + found + ")",
                  "rename a variant to one of these names, or export the model with diffusers' "
                  "save_pretrained(safe_serialization=True)");
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
  if (found == index.end())
    throw bad_file(file, "is not an index of shards: it has no weight_map",
                   "give the folder that it lies in, a file of weights or a *.index.json");
  if (!found->is_object()) throw fail("weight_map is not an object");
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : found->items()) {
    if (!shard.is_string()) throw fail("weight_map " + in_quotes(tensor) + " is not a file name");
    const auto& name = shard.get_ref<const std::string&>();
    // An index must not refer to files outside its folder.
    const bool plain = !name.empty() && name.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
                       name != "." && name != "..";
    if (!plain)
      throw fail("weight_map " + in_quotes(tensor) + ": " + in_quotes(name) +
                 " is not the name of a file in the folder of this index");
    weight_map[tensor] = name;
  }
  if (weight_map.empty()) throw fail("weight_map is empty");
  return weight_map;
}

std::string PartName::of(size_t part) const {
  std::string text = std::to_string(part);
  text.insert(0, digits - std::min(digits, text.size()), '0');
  return stem + "-" + text + rest;
}

std::optional<PartName> part_name(const fs::path& file) {
  static const std::regex kPart("(.+)-([0-9]{1,6})(-of-([0-9]{1,6})\\.[^.]+)");
  std::smatch found;
  const std::string name = file.filename().string();
  if (!std::regex_match(name, found, kPart)) return std::nullopt;
  const size_t number = std::stoul(found[2]), count = std::stoul(found[4]);
  if (count < 2 || number == 0 || number > count) return std::nullopt;
  return PartName{.stem = found[1],
                  .rest = found[3],
                  .digits = static_cast<size_t>(found[2].length()),
                  .number = number,
                  .count = count};
}

StoredWeights open_weights(const fs::path& file) {
  if (file.extension() == ".json") return open_shards(file);
  StoredWeights weights{.origin = file};
  if (const auto part = part_name(file)) {
    weights = open_parts(file, *part);
  } else {
    weights.files = {std::make_shared<TensorFile>(file)};
    for (const TensorEntry& entry : weights.files[0]->entries()) weights.tensors[entry.name] = {0, &entry};
  }
  check_whole(weights);
  return weights;
}

fs::path weights_in(const fs::path& folder) {
  const auto exists = [](const fs::path& file) { return fs::exists(file); };
  for (const auto& [ending, stems] : kWeightFiles) {
    for (const std::string variant : kVariants) {
      for (const char* stem : stems) {
        const std::string plain = (folder / stem).string() + ending;
        const std::array<fs::path, 3> files = {(folder / stem).string() + variant + ending,
                                               plain + ".index" + variant + ".json",  // diffusers' present naming
                                               // Naming of older diffusers versions.
                                               plain + variant + ".index.json"};
        if (const auto found = std::ranges::find_if(files, exists); found != files.end()) return *found;
      }
    }
  }
  throw no_weights(folder);
}

}  // namespace sparsereel::models
