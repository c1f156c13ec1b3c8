// The model families that this program runs: a table with one row (a Family) each. A row holds everything that must be
// known about a checkpoint before weights are read. Each family defines its row in its folder in families/; rows.cpp
// lists the rows. No torch: components.h declares the functions that load weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hilbert/error.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/name_map.h"
#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

class Checkpoint;

/// Sizes of a component that both its config and its tensors show: {"num_layers", 30}. Unknown sizes are left out.
using Sizes = std::map<std::string, int64_t>;

/// Returns the text for a config field in ModelSpec::fingerprint.
inline std::string mark_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

/// Roles of the parts that make a video's sound.
inline constexpr const char *kSoundVae = "audio_vae", *kSoundScheduler = "audio_scheduler";

/// The role of the part that says how the text encoder cuts images into patches.
inline constexpr const char* kProcessor = "processor";

/// A component of a pipeline.
struct Part {
  std::string role;                  // the name of its folder: "transformer"
  std::vector<std::string> classes;  // supported classes; a model with random weights uses the first
  bool optional = false;             // model_index.json may omit it or name [null, null]
  bool any_class = false;            // model_index.json may name other classes too, because only the config counts
  StoredNames names{};               // names of its tensors in files that do not use diffusers' names
  /// Return the part's sizes, from its config.json or from its tensors under diffusers' names. Empty if the tensors
  /// belong to another component. The pointers are null if the part's sizes are not checked.
  Sizes (*sizes_by_config)(const nlohmann::json& config, const std::string& file) = nullptr;
  Sizes (*sizes_by_tensors)(const TensorTable& tensors) = nullptr;
  /// Returns the name of the unsupported model that has these tensors, such as "image to video"; empty if the model is
  /// supported. Null if the part is never checked for unsupported models.
  std::string (*other_model)(const TensorTable& tensors) = nullptr;
  /// Names of published files that hold the part, for errors. For a tokenizer, the Hugging Face repository.
  std::string published = {};
  std::string tokenizer_files = "spiece.model";  // for a tokenizer: the names of its files, for errors
};

/// Returns the tokenizer's repository and files, for errors: "google/umt5-xxl's spiece.model".
std::string tokenizer_of(const Part& part);
/// Returns the remedy for a missing tokenizer, with the command that downloads it if the repository is known.
std::string tokenizer_remedy(const Part& part);

/// The layers of a family's transformers that LoRA files change. Names are diffusers' names.
struct LoraNames {
  std::string blocks;               // the text before a block's number: "blocks."
  std::vector<std::string> layers;  // matrices of a block; the input width of the first is the transformer's width
  std::string other_blocks = {};    // what the model's authors call `blocks`; empty if they use the same word
  /// Ends of the names of layers that have fewer inputs in pruned checkpoints: "adaln_proj.linear". If a LoRA is for
  /// the whole model and the checkpoint is pruned, the LoRA changes only the other layers.
  std::vector<std::string> pruned = {};
  /// The index in StoredNames::others of the map for a LoRA whose tensor names contain PEFT's name of an adapter
  /// ("x.lora_A.default.weight"). A trainer that writes such names may keep the rows of fused layers in another order.
  /// Unset if such a LoRA follows the same maps as others.
  std::optional<size_t> names_with_adapter = {};
  /// The layer that takes the latents, if a LoRA may widen its input so that a model for text takes an image
  /// (widened_input.h); empty if none may.
  std::string input = {};
  /// Changes a transformer's config to the config of a model that also takes an image. Returns the factor by which the
  /// number of input channels grows; 1 if the config already takes an image. Throws Error naming `file` for a bad
  /// config. Null if `input` is empty.
  int64_t (*take_image)(nlohmann::json& config, const std::string& file) = nullptr;
};

struct Family {
  std::string pipeline_class;  // "_class_name" in model_index.json
  std::string name;            // the name for people
  // Other pipeline classes of the same model, for other tasks; the configs tell which task.
  std::vector<std::string> other_classes{};
  std::vector<Part> parts;                 // the components of the pipeline
  std::vector<std::string> settings{};     // scalars of model_index.json that describe() reads
  std::vector<std::string> fingerprint{};  // keys that the family puts into ModelSpec::fingerprint
  PromptRules prompt{};
  LoraNames lora{};
  std::vector<SamplerSpec> samplers;  // one for each class of the part "scheduler"
  /// Describes a checkpoint from the configs of all its parts except the scheduler. models::describe() adds the fields
  /// of this row. Throws Error naming file and field if a value is impossible or two configs contradict each other.
  ModelSpec (*describe)(const Checkpoint& checkpoint);

  const Part& part(std::string_view role) const;
  /// Returns all pipeline classes; the first is pipeline_class.
  std::vector<std::string> classes() const;
};

/// Returns every family, in the order of the help texts: those that families/rows.cpp lists, then those from
/// add_family().
const std::vector<Family>& families();

/// Returns the error for a file whose part belongs to the unsupported model `model` (Part::other_model).
Error unsupported_part(const std::filesystem::path& file, const std::string& role, const std::string& model);

/// Returns true if a part of this role has weights. Schedulers, tokenizers and processors have none.
bool has_weights(std::string_view role);

/// Adds a family. Call it before any checkpoint is opened.
void add_family(Family row);

/// Returns the families that rows.cpp lists.
std::vector<Family> published_families();

/// Returns the family of a pipeline class; null if it is not supported.
const Family* find_family(std::string_view pipeline_class);

/// Returns the keys that an architecture (Checkpoint::with_random_weights) may hold in any family: components and
/// scalars, each once.
std::vector<std::string> architecture_keys();

/// Returns the keys of ModelSpec::fingerprint of all families, each once.
std::vector<std::string> all_fingerprint_keys();

/// Returns the samplers of all families, each once.
std::vector<SamplerSpec> all_samplers();

}  // namespace sparsereel::models
