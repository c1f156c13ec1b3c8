// Opens checkpoints: model_index.json, configs and weights.
#include "models/store/checkpoint/checkpoint.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "hilbert/error.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/checkpoint/quantization.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kScheduler = "scheduler", *kTokenizer = "tokenizer", *kEncoder = "text_encoder",
                     *kImageProcessor = "image_processor";

/// Returns the name of the file with a component's settings in the component's folder.
const char* config_file_of(const std::string& role) {
  if (role == kScheduler || role == kSoundScheduler) return "scheduler_config.json";
  return role == kImageProcessor || role == kProcessor ? "preprocessor_config.json" : "config.json";
}

/// A config and its name in errors. If the config is null, it is read from `file` when it is needed; otherwise `file`
/// is only the name.
struct NamedConfig {
  std::string file;
  json config = {};
};

/// Returns the image settings of a processor's folder. transformers 5 joins them with other settings in one file. All
/// settings have defaults, so both files may be missing.
NamedConfig processor_config(const fs::path& folder) {
  const fs::path own = folder / config_file_of(kProcessor), joint = folder / "processor_config.json";
  std::error_code ignored;
  if (fs::exists(own, ignored)) return {.file = own.string()};
  if (!fs::exists(joint, ignored)) return {.file = own.string(), .config = json::object()};
  const json all = read_json(joint);
  const std::string field = "image_processor";
  if (!all.is_object() || !all.contains(field)) return {.file = joint.string(), .config = json::object()};
  return {.file = joint.string() + ": " + field, .config = all[field]};
}

/// Returns true for [library, class], and for [library, class, {...}], which modular pipelines have.
bool is_entry(const json& entry) {
  return entry.is_array() && (entry.size() == 2 || (entry.size() == 3 && entry[2].is_object()));
}

/// Returns true if the index has the component. An entry [null, null] means that it does not.
bool names(const json& index, const std::string& component) {
  const auto entry = index.find(component);
  if (entry == index.end()) return false;
  return !is_entry(*entry) || !entry->at(0).is_null() || !entry->at(1).is_null();
}

/// Returns the names of a few tensors, for errors.
std::string examples(const Component& component) {
  std::vector<std::string> names;
  for (const auto& [name, place] : component.tensors)
    if (names.size() < 3) names.push_back(in_quotes(place.second->name));
  return names.empty() ? "nothing" : first_of(names);
}

/// Says which tokenizer files a folder lacks, for errors.
std::string lacks_tokenizer(const Part& part) {
  const bool is_one = part.tokenizer_files.find(' ') == std::string::npos;
  return std::string("holds neither ") + (is_one ? "a " : "") + part.tokenizer_files + " nor a tokenizer.json";
}

/// Describes the file that the user should give for a part, for errors.
std::string file_of(const Part& part) {
  const std::string names = part.published.empty() ? "" : " (" + part.published + ")";
  return "a file with the weights of this model's " + part.role + names;
}

/// Throws Error if the component's tensors are not this part, or have other sizes than the config says.
void check_sizes(const Component& component, const Part& part) {
  if (part.sizes_by_tensors == nullptr) return;
  const Sizes found = part.sizes_by_tensors(component.tensors);
  if (const std::string what = found.empty() ? foreign_model(component.origin) : ""; !what.empty())
    throw foreign_file(component.origin, what);
  // These checks come before the comparison of sizes: weights in an unsupported quantized form have other shapes, which
  // say nothing about the model's sizes.
  check_quantization(component.files);
  check_layers(component.quantized, component.files);
  if (found.empty())
    throw bad_file(component.origin, "holds no " + component.class_name + ", but for example " + examples(component),
                   "name " + file_of(part));
  const std::string other = part.other_model == nullptr ? "" : part.other_model(component.tensors);
  if (!other.empty()) throw unsupported_part(component.origin, part.role, other);
  std::string differences;
  for (const auto& [name, size] : part.sizes_by_config(component.config, component.config_file)) {
    const auto there = found.find(name);
    if (there == found.end() || there->second == size) continue;
    differences += (differences.empty() ? "" : ", ") + name + " is " + std::to_string(there->second) + ", not " +
                   std::to_string(size);
  }
  if (!differences.empty())
    throw bad_file(component.origin, "does not fit " + component.config_file + ": " + differences,
                   "use " + file_of(part) + ", or the folder of the model to which the weights belong");
}

/// Returns the config.json beside the weights of a part; null if there is none, or if it belongs to another part.
json config_beside(const fs::path& weights, const Part& part) {
  const fs::path file = weights.parent_path() / config_file_of(part.role);
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  json config = read_json(file);
  const json name = config.is_object() ? config.value("_class_name", json()) : json();
  const auto is_name = [&](const std::string& each) { return name == each; };
  return std::ranges::any_of(part.classes, is_name) ? config : json();
}

bool is_file(const fs::path& weights) {
  std::error_code ignored;
  return fs::is_regular_file(weights, ignored);
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw bad_file(path, fs::exists(path, error) ? "is not a folder" : "there is no file or folder of this name here",
                   "check the path, and name a diffusers folder, ComfyUI's folder or a file of weights");
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.index_file_ = path / "model_index.json";
  checkpoint.index_ = read_json(checkpoint.index_file_);
  checkpoint.pipeline_class_ = check_model_index(checkpoint.index_, checkpoint.index_file_.string());
  checkpoint.places_ = {checkpoint.index_file_};
  for (const auto& [name, entry] : checkpoint.index_.items())
    if (entry.is_array() && fs::path(name).filename() == name && name != ".." && name != ".")
      checkpoint.places_.push_back(path / name);
  for (const std::string& role : checkpoint.roles()) {
    checkpoint.sources_[role] = {.class_name = checkpoint.index_[role][1].get<std::string>(),
                                 .config_file = (path / role / config_file_of(role)).string(),
                                 .weights = path / role};
    if (role != kProcessor) continue;
    NamedConfig found = processor_config(path / role);
    checkpoint.sources_[role].config_file = std::move(found.file);
    checkpoint.sources_[role].config = std::move(found.config);
  }
  return checkpoint;
}

Checkpoint Checkpoint::with_random_weights(const fs::path& file, const std::string& transformer_class,
                                           const json& architecture, uint64_t seed) {
  Checkpoint checkpoint;
  checkpoint.path_ = checkpoint.index_file_ = file;
  checkpoint.places_ = {file};
  json& index = checkpoint.index_;
  for (const Family& family : families()) {
    const std::vector<std::string>& known = family.part("transformer").classes;
    if (std::find(known.begin(), known.end(), transformer_class) == known.end()) continue;
    index["_class_name"] = family.pipeline_class;
    for (const std::string& setting : family.settings) {
      if (!architecture.contains(setting)) continue;
      if (!architecture[setting].is_primitive())
        throw bad_file(file, "architecture." + setting + " is not a single value", "write the value alone");
      index[setting] = architecture[setting];
    }
    for (const Part& part : family.parts) {
      const bool described = architecture.contains(part.role) && architecture[part.role].is_object();
      if (!described && part.optional) continue;
      if (!described && part.role != kTokenizer)
        throw bad_file(file, "architecture." + part.role + " is missing",
                       "give the content of the component's config.json below that key");
      const json found = described ? architecture[part.role].value("_class_name", json()) : json();
      index[part.role] = {"", found.is_string() ? found : json(part.classes.front())};
    }
  }
  if (index.is_null())
    throw bad_file(file, "no model has the transformer " + in_quotes(transformer_class),
                   "use the class that 'sparsereel inspect' shows for a checkpoint's transformer");
  checkpoint.pipeline_class_ = check_model_index(index, file.string());
  for (const std::string& role : checkpoint.roles())
    checkpoint.sources_[role] = {.class_name = index[role][1].get<std::string>(),
                                 .config_file = file.string() + ": architecture." + role,
                                 .config = architecture.value(role, json::object()),
                                 .random_seed = seed};
  return checkpoint;
}

Checkpoint Checkpoint::of_files(const fs::path& path, const fs::path& file, const std::string& transformer_class,
                                const json& architecture, const std::map<std::string, fs::path>& files) {
  Checkpoint checkpoint = with_random_weights(file, transformer_class, architecture);
  checkpoint.path_ = path;
  checkpoint.is_of_files_ = true;
  checkpoint.places_.clear();
  for (const auto& [role, place] : files) {
    checkpoint.places_.push_back(place);
    if (role == kTokenizer) {  // A tokenizer in the text encoder's own file has precedence over this one.
      checkpoint.sources_[role].weights = place;
      continue;
    }
    if (json config = config_beside(place, find_family(checkpoint.pipeline_class_)->part(role)); !config.is_null()) {
      Source& source = checkpoint.sources_[role];
      source.class_name = config["_class_name"];
      source.config_file = (place.parent_path() / config_file_of(role)).string();
      source.config = std::move(config);
      checkpoint.places_.emplace_back(source.config_file);
    }
    checkpoint.replace(role, place);
    for (const auto& each : checkpoint.component(role).files) checkpoint.places_.push_back(each->path());
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::roles() const {
  std::vector<std::string> roles;
  for (const Part& part : find_family(pipeline_class_)->parts) {
    if (names(index_, part.role)) roles.push_back(part.role);
  }
  return roles;
}

json Checkpoint::setting(const std::string& name) const {
  const auto found = index_.find(name);
  return found != index_.end() && found->is_primitive() ? *found : json();
}

const Checkpoint::Source& Checkpoint::source_of(const std::string& role) const {
  const auto found = sources_.find(role);
  if (found == sources_.end()) throw bad_file(index_file_, "names no component " + in_quotes(role), kDownloadAgain);
  return found->second;
}

std::string Checkpoint::component_class(const std::string& role) const {
  return source_of(role).class_name;
}

std::optional<TokenizerPlace> Checkpoint::other_tokenizer() const {
  if (!tokenizer_.empty()) return TokenizerPlace{tokenizer_};
  if (!is_file(source_of(kEncoder).weights)) return std::nullopt;
  const Component& encoder = component(kEncoder);
  for (const auto& file : encoder.files)
    if (auto inside = tokenizer_in(file)) return inside;
  return tokenizer_beside(encoder.origin, find_family(pipeline_class_)->part(kTokenizer).published);
}

std::optional<TokenizerPlace> Checkpoint::tokenizer() const {
  if (auto other = other_tokenizer()) return other;
  const Source& text = source_of(kEncoder);
  if (text.random_seed) return std::nullopt;
  const fs::path& own = source_of(kTokenizer).weights;
  if (holds_tokenizer(own)) return TokenizerPlace{own};
  std::string places = is_file(text.weights) ? text.weights.string() + " or beside it" : "";
  if (!own.empty()) places += (places.empty() ? "" : ", or in ") + own.string();
  throw bad_option(kTokenizer, "is needed: there is none in " + places,
                   tokenizer_remedy(find_family(pipeline_class_)->part(kTokenizer)));
}

json Checkpoint::config(const std::string& role, std::string* file) const {
  const Source& source = source_of(role);
  if (file != nullptr) *file = source.config_file;
  if (!source.config.is_null()) return source.config;
  json config = read_json(source.config_file);
  // diffusers builds the class that model_index.json names, whichever scheduler wrote the config.
  if ((role == kScheduler || role == kSoundScheduler) && config.is_object()) config["_class_name"] = source.class_name;
  return config;
}

const Component& Checkpoint::component(const std::string& role) const {
  const auto found = opened_.find(role);
  return found != opened_.end() ? found->second : opened_.emplace(role, open_component(role)).first->second;
}

void Checkpoint::add(const std::string& role, const WeightDeltas& deltas) {
  component(role);
  for (const auto& [tensor, added] : deltas) {
    std::vector<WeightDelta>& all = opened_.at(role).deltas[tensor];
    all.insert(all.end(), added.begin(), added.end());
  }
}

void Checkpoint::widen(const std::string& role, const std::string& tensor, const std::vector<int64_t>& shape,
                       json config) {
  component(role);
  Component& opened = opened_.at(role);
  opened.widened[tensor] = shape;
  opened.config = sources_.at(role).config = std::move(config);
}

bool Checkpoint::is_widened(const std::string& role) const {
  const auto found = opened_.find(role);
  return found != opened_.end() && !found->second.widened.empty();
}

void Checkpoint::replace(const std::string& role, const fs::path& file) {
  if (!sources_.contains(role))
    throw bad_option(role, file.string() + ": this model has no " + role, "leave " + role + " out");
  const Part& part = find_family(pipeline_class_)->part(role);
  std::error_code ignored;
  const bool is_folder = fs::is_directory(file, ignored);
  if (role == kTokenizer) {
    if (is_folder ? !holds_tokenizer(file) : !fs::exists(file, ignored))
      throw bad_file(file, is_folder ? lacks_tokenizer(part) : "no such file", "give " + tokenizer_of(part));
    tokenizer_ = file;
    return;
  }
  sources_[role].weights = file_of_role(role, file);
  sources_[role].random_seed.reset();
  opened_.erase(role);
  check_sizes(component(role), part);
}

Component Checkpoint::open_component(const std::string& role) const {
  const Source& source = source_of(role);
  std::string config_file;
  json its_config = config(role, &config_file);
  Component component;
  if (!source.weights.empty()) {
    const bool by_itself = !fs::is_directory(source.weights);
    const fs::path file = by_itself ? source.weights : weights_in(source.weights);
    component = component_of(open_weights(file), find_family(pipeline_class_)->part(role));
    component.by_itself = by_itself;
  }
  component.class_name = source.class_name;
  component.origin = source.weights;
  component.random_seed = source.random_seed;
  component.config = std::move(its_config);
  component.config_file = std::move(config_file);
  return component;
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
    for (const Family& each : families())
      for (const std::string& name : each.classes()) known.push_back(name);
    throw bad_file(file, "_class_name " + in_quotes(pipeline_class) + " is not supported",
                   "use a checkpoint of " + list_of(known));
  }
  for (const Part& part : family->parts) {
    const std::string& role = part.role;
    if (part.optional && !names(index, role)) continue;
    const auto entry = index.find(role);
    if (entry == index.end()) throw fail("names no component " + in_quotes(role));
    if (!is_entry(*entry) || !entry->at(1).is_string()) throw fail(role + " is not a pair [library, class]");
    const auto& class_name = entry->at(1).get_ref<const std::string&>();
    if (part.any_class || std::ranges::count(part.classes, class_name) > 0) continue;
    throw bad_file(file, role + ": " + in_quotes(class_name) + " is not supported",
                   "use a checkpoint whose " + role + " is " + list_of(part.classes));
  }
  return pipeline_class;
}

}  // namespace sparsereel::models
