// A checkpoint: a config and weights for each component, whichever files they come from. No torch.
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

/// Checks the content of a model_index.json and returns its pipeline class. The family must be known (family.h), and
/// every component that it needs named, with a supported class. Throws Error naming `file` and the entry.
std::string check_model_index(const nlohmann::json& index, const std::string& file);

/// A file that was chosen for a part.
struct ChosenFile {
  std::string role;
  std::filesystem::path path;
  size_t found = 1;         // how many files could have been this part
  bool is_partner = false;  // found as the other expert of the one that the user named
};

/// The model of a run: its pipeline class, and a config and weights for each role ("transformer", "vae"). It is a
/// folder in diffusers' layout, in which other files may replace weights, or an architecture with weights from files or
/// random ones. Opening reads only JSON; component() maps the weights.
class Checkpoint {  // NOLINT(bugprone-exception-escape): as in Component
 public:
  /// Opens a folder with a model_index.json and the folders of its components. Throws Error if the index is missing or
  /// malformed, or names an unsupported pipeline class.
  static Checkpoint open(const std::filesystem::path& path);
  /// Makes a pipeline with random weights. `architecture` holds each component's config.json under the component's
  /// name. There is no tokenizer. Throws Error naming `file` if a component is missing or no family has this
  /// transformer class.
  static Checkpoint with_random_weights(const std::filesystem::path& file, const std::string& transformer_class,
                                        const nlohmann::json& architecture, uint64_t seed = 0);

  /// Makes the same pipeline with weights from `files`: a file or an index of shards for each role, a folder for the
  /// tokenizer. `path` is the user's name for the model. Throws Error as replace() does.
  static Checkpoint of_files(const std::filesystem::path& path, const std::filesystem::path& file,
                             const std::string& transformer_class, const nlohmann::json& architecture,
                             const std::map<std::string, std::filesystem::path>& files);

  const std::filesystem::path& path() const { return path_; }  // the folder, or the file of the architecture
  /// Returns the file that names the components: model_index.json, or the file of the architecture.
  const std::filesystem::path& index_file() const { return index_file_; }
  const std::string& pipeline_class() const { return pipeline_class_; }
  /// Returns true if open_model() made it of files, including files that the user named for single parts.
  bool is_of_files() const { return is_of_files_; }
  /// Returns the files that were chosen because the user did not name all of them.
  const std::vector<ChosenFile>& choices() const { return choices_; }
  void set_choices(std::vector<ChosenFile> choices) { choices_ = std::move(choices); }
  /// Returns the index, folders of components, architecture file and files of weights that the model is read from.
  const std::vector<std::filesystem::path>& places() const { return places_; }
  /// Returns the roles of the family's parts that this checkpoint has, in the family's order.
  std::vector<std::string> roles() const;
  std::string component_class(const std::string& role) const;
  /// Returns a scalar of model_index.json, or of the architecture that replaces it; null if there is no such scalar.
  nlohmann::json setting(const std::string& name) const;
  /// Returns the tokenizer that the user named, or else the one in or beside the text encoder's single file, or else
  /// the one in the model's folder. Returns nothing for a text encoder with random weights. Throws Error (field:
  /// tokenizer) naming what is needed if there is no tokenizer.
  std::optional<TokenizerPlace> tokenizer() const;
  /// Returns what tokenizer() returns, but never the tokenizer of the model's own folder.
  std::optional<TokenizerPlace> other_tokenizer() const;
  /// Replaces the weights of a role by a file, by the shards of an index, or by the only such file in a folder. Tensors
  /// have the names of diffusers or of the model's authors, with or without a prefix. The role's config stays. Reads
  /// the header. A tokenizer may be a folder. Throws Error (field: the role) if the checkpoint has no such role. Throws
  /// Error naming the file if it is damaged or its sizes contradict the config.
  void replace(const std::string& role, const std::filesystem::path& file);
  /// Maps the weights of a component. In a folder these are diffusion_pytorch_model.safetensors or model.safetensors,
  /// or the shards of the *.index.json beside it. If neither exists, a variant is taken (*.bf16.safetensors), then
  /// *.bin in the same order. Throws one Error for missing shards, and for tensors in two shards that the index does
  /// not assign. A component stays open, so the folder may be moved afterwards.
  const Component& component(const std::string& role) const;
  /// Adds these changes to a role's weights when the weights are read.
  void add(const std::string& role, const WeightDeltas& deltas);
  /// Makes a tensor of a role be read in a shape with more columns, the new ones zero (Component::widened), and
  /// replaces the role's config by one for this shape.
  void widen(const std::string& role, const std::string& tensor, const std::vector<int64_t>& shape,
             nlohmann::json config);
  bool is_widened(const std::string& role) const;
  /// Returns a component's config.json (scheduler_config.json for the scheduler). `file` receives its name in errors.
  nlohmann::json config(const std::string& role, std::string* file = nullptr) const;

 private:
  /// The files that a component is read from.
  struct Source {
    std::string class_name;
    std::string config_file;             // its name in errors
    nlohmann::json config = {};          // null to read config_file
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
  std::filesystem::path tokenizer_;        // replaces all other tokenizers; empty if the user named none
  bool is_of_files_ = false;
  std::vector<ChosenFile> choices_;
  mutable std::map<std::string, Component> opened_;
};

}  // namespace sparsereel::models
