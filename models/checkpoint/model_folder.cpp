// Opens a diffusers-layout folder: model_index.json, configs, weights in one file or in shards.
#include "models/checkpoint/model_folder.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "hilbert/error.h"
#include "models/checkpoint/family.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxJsonBytes = 100 << 20;
constexpr size_t kListed = 20;  // names of each kind in one error
constexpr const char* kDownloadAgain =
    "download the folder again, or export it with diffusers' save_pretrained(safe_serialization=True)";
// diffusers' name, then transformers'.
constexpr const char* kWeightFiles[] = {"diffusion_pytorch_model.safetensors", "model.safetensors"};

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

void map_single(Component& component, const fs::path& file) {
  component.files.push_back(std::make_shared<TensorFile>(file));
  for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
}

void map_shards(Component& component, const fs::path& index_file) {
  const auto weight_map = parse_weight_map(read_json(index_file), index_file.string());
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  Disagreements disagreements;
  std::set<std::string> missing_shards;
  for (const std::string& shard : shards) {
    const fs::path file = component.folder / shard;
    if (!fs::exists(file)) {
      disagreements.add("missing shards", in_quotes(shard));
      missing_shards.insert(shard);
      continue;
    }
    const size_t number = component.files.size();
    component.files.push_back(std::make_shared<TensorFile>(file));
    for (const TensorEntry& entry : component.files.back()->entries()) {
      const auto listed = weight_map.find(entry.name);
      if (listed == weight_map.end()) {
        disagreements.add("tensors that the index does not list", in_quotes(entry.name) + " in " + shard);
      } else if (listed->second == shard) {
        component.tensors[entry.name] = {number, &entry};
      } else {
        disagreements.add("tensors in a shard that the index does not name for them",
                          in_quotes(entry.name) + " in " + shard);
      }
    }
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (!component.tensors.contains(tensor) && !missing_shards.contains(shard))
      disagreements.add("tensors that their shard lacks", in_quotes(tensor) + " in " + shard);
  }
  disagreements.throw_if_any(index_file.string());
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
  const std::string cause =
      std::string("no ") + kWeightFiles[0] + " or " + kWeightFiles[1] + ", and no index of shards of either";
  if (found.empty()) return bad_file(folder, cause, kDownloadAgain);
  return bad_file(
      folder, cause + " (found " + found + ")",
      "rename a variant to that name, or export the model with diffusers' save_pretrained(safe_serialization=True)");
}

/// False where the component is left out, or is [null, null].
bool names(const json& index, const std::string& component) {
  const auto entry = index.find(component);
  return entry != index.end() && *entry != json::array({nullptr, nullptr});
}

/// Throws where a family knows this checkpoint in another layout.
void refuse_other_layouts(const fs::path& path) {
  for (const Family& family : families()) {
    const std::string repository = family.repository_of == nullptr ? "" : family.repository_of(path);
    if (!repository.empty())
      throw bad_file(path, "holds " + family.name + " in another layout than diffusers', which " + repository + " has",
                     "get that: 'hf download " + repository + " --local-dir <folder>'");
  }
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

uint64_t Component::parameter_count() const {
  uint64_t count = 0;
  for (const auto& [tensor, place] : tensors) count += place.second->elements();
  return count;
}

uint64_t Component::bytes() const {
  uint64_t sum = 0;
  for (const auto& [tensor, place] : tensors) sum += place.second->bytes;
  return sum;
}

ModelFolder ModelFolder::open(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::exists(path / "model_index.json", error)) refuse_other_layouts(path);
  if (!fs::is_directory(path, error))
    throw bad_file(path, "is not a folder",
                   "give a diffusers-layout folder; one comes with 'hf download <repository> --local-dir <folder>'");
  const fs::path index_file = path / "model_index.json";
  ModelFolder folder;
  folder.path_ = path;
  folder.index_ = read_json(index_file);
  folder.pipeline_class_ = check_model_index(folder.index_, index_file.string());
  return folder;
}

ModelFolder ModelFolder::with_random_weights(const fs::path& file, const std::string& transformer_class,
                                             const json& architecture, uint64_t seed) {
  ModelFolder folder;
  folder.path_ = file;
  folder.architecture_ = architecture;
  folder.random_seed_ = seed;
  for (const Family& family : families()) {
    const std::vector<std::string>& known = family.part("transformer").classes;
    if (std::find(known.begin(), known.end(), transformer_class) == known.end()) continue;
    folder.index_["_class_name"] = family.pipeline_class;
    for (const std::string& setting : family.settings) {
      if (!architecture.contains(setting)) continue;
      if (!architecture[setting].is_primitive())
        throw bad_file(file, "architecture." + setting + " is not a single value", "write the value alone");
      folder.index_[setting] = architecture[setting];
    }
    for (const auto& [name, classes, optional] : family.parts) {
      const bool described = architecture.contains(name) && architecture[name].is_object();
      if (!described && optional) continue;
      if (!described && name != "tokenizer")
        throw bad_file(file, "architecture." + name + " is missing",
                       "give the content of the component's config.json below that key");
      const json found = described ? architecture[name].value("_class_name", json()) : json();
      folder.index_[name] = {"", found.is_string() ? found : json(classes.front())};
    }
  }
  if (folder.index_.is_null())
    throw bad_file(file, "no model has the transformer " + in_quotes(transformer_class),
                   "use the class that 'sparsereel inspect' shows of a checkpoint's transformer");
  folder.pipeline_class_ = check_model_index(folder.index_, file.string());
  return folder;
}

std::vector<fs::path> ModelFolder::places() const {
  if (has_random_weights()) return {path_};
  std::vector<fs::path> places = {path_ / "model_index.json"};
  for (const auto& [name, entry] : index_.items())
    if (entry.is_array() && fs::path(name).filename() == name && name != ".." && name != ".")
      places.push_back(path_ / name);
  return places;
}

std::vector<std::string> ModelFolder::roles() const {
  std::vector<std::string> roles;
  for (const Part& part : find_family(pipeline_class_)->parts) {
    if (names(index_, part.role)) roles.push_back(part.role);
  }
  return roles;
}

json ModelFolder::setting(const std::string& name) const {
  const auto found = index_.find(name);
  return found != index_.end() && found->is_primitive() ? *found : json();
}

std::string ModelFolder::component_class(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end())
    throw bad_file(path_ / "model_index.json", "names no component " + in_quotes(name), kDownloadAgain);
  return found->at(1).get<std::string>();
}

json ModelFolder::config(const std::string& name, std::string* file) const {
  const std::string class_name = component_class(name);
  if (has_random_weights()) {
    if (file != nullptr) *file = path_.string() + ": architecture." + name;
    return architecture_.at(name);
  }
  const bool scheduler = name == "scheduler";
  const fs::path path = path_ / name / (scheduler ? "scheduler_config.json" : "config.json");
  if (file != nullptr) *file = path.string();
  json config = read_json(path);
  // diffusers builds the class that model_index.json names, whichever scheduler wrote the config.
  if (scheduler && config.is_object()) config["_class_name"] = class_name;
  return config;
}

const Component& ModelFolder::component(const std::string& name) const {
  const auto found = opened_.find(name);
  return found != opened_.end() ? found->second : opened_.emplace(name, open_component(name)).first->second;
}

void ModelFolder::add(const std::string& name, const WeightDeltas& deltas) {
  component(name);
  for (const auto& [tensor, added] : deltas) {
    std::vector<WeightDelta>& all = opened_.at(name).deltas[tensor];
    all.insert(all.end(), added.begin(), added.end());
  }
}

Component ModelFolder::open_component(const std::string& name) const {
  Component component;
  component.class_name = component_class(name);
  component.folder = path_ / name;
  component.config = config(name, &component.config_file);
  component.random_seed = random_seed_;
  if (has_random_weights()) return component;
  for (const char* weights : kWeightFiles) {
    const fs::path single = component.folder / weights;
    const fs::path index_file = single.string() + ".index.json";
    if (fs::exists(single)) {
      map_single(component, single);
      return component;
    }
    if (fs::exists(index_file)) {
      map_shards(component, index_file);
      return component;
    }
  }
  throw no_weights(component.folder);
}

std::string check_model_index(const json& index, const std::string& file) {
  const auto fail = [&](const std::string& what) { return bad_file(file, what, kDownloadAgain); };
  if (!index.is_object()) throw fail("is not a JSON object");
  const auto found = index.find("_class_name");
  if (found == index.end() || !found->is_string()) throw fail("_class_name is missing or not a string");
  const auto& pipeline_class = found->get_ref<const std::string&>();
  const Family* family = find_family(pipeline_class);
  if (family == nullptr) {
    std::vector<std::string> known;
    for (const Family& each : families()) known.push_back(each.pipeline_class);
    throw bad_file(file, "_class_name " + in_quotes(pipeline_class) + " is not supported",
                   "use a checkpoint of " + list_of(known));
  }
  for (const auto& [name, classes, optional] : family->parts) {
    if (optional && !names(index, name)) continue;
    const auto entry = index.find(name);
    if (entry == index.end()) throw fail("names no component " + in_quotes(name));
    if (!entry->is_array() || entry->size() != 2 || !entry->at(1).is_string())
      throw fail(name + " is not a pair [library, class]");
    const auto& class_name = entry->at(1).get_ref<const std::string&>();
    if (std::find(classes.begin(), classes.end(), class_name) != classes.end()) continue;
    throw bad_file(file, name + ": " + in_quotes(class_name) + " is not supported",
                   "use a checkpoint whose " + name + " is " + list_of(classes));
  }
  return pipeline_class;
}

}  // namespace sparsereel::models
