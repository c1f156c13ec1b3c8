// A checkpoint: the config and the weights of each component of a model, whichever files they come from. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/component.h"
#include "models/store/checkpoint/tokenizer_place.h"

namespace sparsereel::models {

/// Checks the content of a model_index.json and returns its pipeline class. Throws Error naming `file` and the entry if
/// no family (family.h) has this class, or if a component that the family needs is missing or has an unsupported class.
std::string check_model_index(const nlohmann::json& index, const std::string& file);

/// The file that open_model() took for a part.
struct ChosenFile {
  std::string role;
  std::filesystem::path path;
  size_t found = 1;         // how many files could have been this part
  bool is_partner = false;  // true if it is the second expert, found beside the first one that the user named
};

/// The model of a run: its pipeline class, and a config and weights for each role ("transformer", "vae"). There are two
/// kinds. One is a folder in diffusers' layout; replace() can take the weights of a role from other files. The other is
/// an architecture (one file with the configs of all components), with weights from files or random weights. Opening
/// reads only JSON; component() maps the weights.
class Checkpoint {  // NOLINT(bugprone-exception-escape): json's noexcept move contains assertions
 public:
  /// Opens a folder with a model_index.json and the folders of its components. Throws Error if the index is missing or
  /// malformed, or names an unsupported pipeline class.
  static Checkpoint open(const std::filesystem::path& path);
  /// Makes a pipeline with random weights. `architecture` holds each component's config.json under the component's
  /// name. There is no tokenizer. Throws Error naming `file` if a component is missing or no family has this
  /// transformer class.
  static Checkpoint with_random_weights(const std::filesystem::path& file, const std::string& transformer_class,
                                        const nlohmann::json& architecture, uint64_t seed = 0);

  /// Makes a pipeline as with_random_weights() does, but with weights from `files`: a file or an index of shards for
  /// each role, and a folder for the tokenizer. `path` is the user's name for the model. Throws Error as replace()
  /// does.
  static Checkpoint of_files(const std::filesystem::path& path, const std::filesystem::path& file,
                             const std::string& transformer_class, const nlohmann::json& architecture,
                             const std::map<std::string, std::filesystem::path>& files);

  const std::filesystem::path& path() const { return path_; }  // the folder, or the file of the architecture
  /// Returns the file that lists the components: model_index.json, or the file of the architecture.
  const std::filesystem::path& index_file() const { return index_file_; }
  const std::string& pipeline_class() const { return pipeline_class_; }
  /// Returns true if open_model() put the model together from single files, with or without files that the user named.
  bool is_of_files() const { return is_of_files_; }
  /// Returns the files that open_model() took for the parts, found or named by the user. Empty for a folder in
  /// diffusers' layout.
  const std::vector<ChosenFile>& choices() const { return choices_; }
  void set_choices(std::vector<ChosenFile> choices) { choices_ = std::move(choices); }
  /// Returns every place that the model is read from: index, folders of components, architecture file and files of
  /// weights.
  const std::vector<std::filesystem::path>& places() const { return places_; }
  /// Returns the roles of the family's parts that this checkpoint has, in the family's order.
  std::vector<std::string> roles() const;
  std::string component_class(const std::string& role) const;
  /// Returns a scalar of model_index.json, or of the architecture that replaces it; null if there is no such scalar.
  nlohmann::json setting(const std::string& name) const;
  /// Returns the tokenizer that the user named, or else the one in or beside the text encoder's single file, or else
  /// the one in the model's folder. Returns nullopt if there is none and the text encoder's weights are random. For
  /// other weights without a tokenizer, throws Error (field: tokenizer) naming what is needed.
  std::optional<TokenizerPlace> tokenizer() const;
  /// Does the same as tokenizer(), but ignores the tokenizer in the model's own folder. Returns nullopt if there is no
  /// other, whatever the weights are.
  std::optional<TokenizerPlace> other_tokenizer() const;
  /// Replaces the weights of a role by a file, by the shards of an index, or by the only file or index of weights in a
  /// folder. The file may use the tensor names of diffusers or of the model's authors, with or without a prefix. The
  /// role's config stays. Reads only headers. If the role is the tokenizer, `file` may also be its folder. Throws Error
  /// (field: the role) if the checkpoint has no such role. Throws Error naming the file if it is damaged or its sizes
  /// contradict the config.
  void replace(const std::string& role, const std::filesystem::path& file);
  /// Maps the weights of a component. If they are a folder, takes diffusion_pytorch_model.safetensors or
  /// model.safetensors, or the shards that an index (*.index.json) of one of these names lists. If neither exists, it
  /// takes a variant (*.bf16.safetensors), and then *.bin in the same order. Throws one Error that names all missing
  /// shards. Also throws Error if a tensor is in two shards and the index does not say from which shard to take it. The
  /// files stay open, so the folder may be moved afterwards.
  const Component& component(const std::string& role) const;
  /// Registers changes that are added to a role's weights when these are read.
  void add(const std::string& role, const WeightDeltas& deltas);
  /// Sets the shape in which a tensor of a role is read. It has more columns than the stored tensor; the new columns
  /// are zero (Component::widened). Replaces the role's config by `config`, which must fit this shape.
  void widen(const std::string& role, const std::string& tensor, const std::vector<int64_t>& shape,
             nlohmann::json config);
  bool is_widened(const std::string& role) const;
  /// Returns a component's config.json (scheduler_config.json for the scheduler). If `file` is not null, it receives
  /// the name that errors use for this config.
  nlohmann::json config(const std::string& role, std::string* file = nullptr) const;

 private:
  /// The files that a component is read from.
  struct Source {
    std::string class_name;
    std::string config_file;             // the config's name in errors
    nlohmann::json config = {};          // if null, config_file is read instead
    std::filesystem::path weights = {};  // a folder or one file; empty if there are none
    std::optional<uint64_t> random_seed = {};
  };

  const Source& source_of(const std::string& role) const;
  Component open_component(const std::string& role) const;

  std::filesystem::path path_, index_file_;
  std::string pipeline_class_;
  nlohmann::json index_;  // model_index.json, or its equivalent made from an architecture
  std::vector<std::filesystem::path> places_;
  std::map<std::string, Source> sources_;  // by role
  // The user's tokenizer, which has precedence over all others; empty if the user named none.
  std::filesystem::path tokenizer_;
  bool is_of_files_ = false;
  std::vector<ChosenFile> choices_;
  mutable std::map<std::string, Component> opened_;
};

}  // namespace sparsereel::models
