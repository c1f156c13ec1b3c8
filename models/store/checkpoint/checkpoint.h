// A checkpoint: for each component a config and weights, wherever they are read from. No torch.
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

/// Checks the content of a model_index.json and returns its pipeline class: a known family (family.h) that names every
/// component it needs, each of a supported class. Throws Error naming `file` and the entry.
std::string check_model_index(const nlohmann::json& index, const std::string& file);

/// A file that was chosen for a part, and how.
struct ChosenFile {
  std::string role;
  std::filesystem::path path;
  size_t found = 1;         // how many files could have been this part
  bool is_partner = false;  // of the other expert, which the user named
};

/// What a run is made of: its pipeline's class, and for each role ("transformer", "vae") a config and weights: a folder
/// in diffusers' layout, one whose weights are replaced by other files, or an architecture with random weights or with
/// files. Opening
/// reads only JSON; weights are mapped by component().
class Checkpoint {  // NOLINT(bugprone-exception-escape): as above
 public:
  /// A folder with a model_index.json and its components' folders. Throws Error when one of the two is missing,
  /// malformed or of an unsupported pipeline class.
  static Checkpoint open(const std::filesystem::path& path);
  /// A pipeline without weights: `architecture` holds each component's config.json under the component's name, and the
  /// weights are random. It has no tokenizer. Throws Error naming `file` when a component is missing or no family has
  /// this transformer class.
  static Checkpoint with_random_weights(const std::filesystem::path& file, const std::string& transformer_class,
                                        const nlohmann::json& architecture, uint64_t seed = 0);

  /// The same with these weights: for each role a file, or the index of its shards; of the tokenizer its folder.
  /// `path`: what the user calls it. Throws Error as replace() does.
  static Checkpoint of_files(const std::filesystem::path& path, const std::filesystem::path& file,
                             const std::string& transformer_class, const nlohmann::json& architecture,
                             const std::map<std::string, std::filesystem::path>& files);

  const std::filesystem::path& path() const { return path_; }  // the folder, or the file of the architecture
  /// What names its components: model_index.json, or the file of the architecture.
  const std::filesystem::path& index_file() const { return index_file_; }
  const std::string& pipeline_class() const { return pipeline_class_; }
  /// Whether open_model() made it of files, those included that the user named for single parts.
  bool is_of_files() const { return is_of_files_; }
  /// Which files were chosen where the user did not name them all.
  const std::vector<ChosenFile>& choices() const { return choices_; }
  void set_choices(std::vector<ChosenFile> choices) { choices_ = std::move(choices); }
  /// What it is read from: the index and the folder of each component that this names; the file of the architecture;
  /// the files of the weights.
  const std::vector<std::filesystem::path>& places() const { return places_; }
  /// Those of the family's parts that this checkpoint has, in the family's order.
  std::vector<std::string> roles() const;
  std::string component_class(const std::string& role) const;
  /// A scalar of model_index.json, or of the architecture that stands for it; null where there is none.
  nlohmann::json setting(const std::string& name) const;
  /// The one that was put in its place; where the text encoder is one file, that which is in it or beside it; else the
  /// folder's, which is no other. Nothing where no text was learnt. Throws Error (field: tokenizer) saying what is
  /// wanted where there is none.
  std::optional<TokenizerPlace> tokenizer() const;
  std::optional<TokenizerPlace> other_tokenizer() const;
  /// From now on the role's weights are those of this one file, of the shards of this index, or of the one of either
  /// kind in this folder, under diffusers' names or those of the model's authors, with a prefix or without; its config
  /// stays. Reads the header. A tokenizer may be a folder, too. Throws Error (field: the role) where the checkpoint has
  /// no such role, and naming the file where it is damaged or of other sizes than the config says.
  void replace(const std::string& role, const std::filesystem::path& file);
  /// Maps the weights of a component: of a folder diffusion_pytorch_model.safetensors or model.safetensors, or the
  /// shards of the *.index.json beside it; where neither is there, those of a variant (*.bf16.safetensors), then *.bin
  /// in the same order. Missing shards, or a tensor in two of them that the index does not decide: one Error. What was
  /// opened once stays open: the folder may then be moved.
  const Component& component(const std::string& role) const;
  /// From now on its weights are read with these added.
  void add(const std::string& role, const WeightDeltas& deltas);
  /// config.json of a component (scheduler_config.json of the scheduler) without touching weights.
  nlohmann::json config(const std::string& role, std::string* file = nullptr) const;

 private:
  /// Where a component is read from.
  struct Source {
    std::string class_name;
    std::string config_file;             // as errors call it
    nlohmann::json config = {};          // null: that file's
    std::filesystem::path weights = {};  // a folder, or one file; empty: nowhere
    std::optional<uint64_t> random_seed = {};
  };

  const Source& source_of(const std::string& role) const;
  Component open_component(const std::string& role) const;

  std::filesystem::path path_, index_file_;
  std::string pipeline_class_;
  nlohmann::json index_;  // model_index.json, or what it would be
  std::vector<std::filesystem::path> places_;
  std::map<std::string, Source> sources_;  // by role
  std::filesystem::path tokenizer_;        // in place of the others
  bool is_of_files_ = false;
  std::vector<ChosenFile> choices_;
  mutable std::map<std::string, Component> opened_;
};

}  // namespace sparsereel::models
