// The model families that this program runs, one row each. A row holds everything that must be known about a checkpoint
// before weights are read. Each family defines its row in its folder in families/; rows.cpp lists them. No torch:
// components.h declares the functions that load weights.
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

/// Sizes that a component's config states and its tensors show: {"num_layers", 30}. Sizes that cannot be told are left
/// out.
using Sizes = std::map<std::string, int64_t>;

/// Returns the text for a config field in ModelSpec::fingerprint.
inline std::string mark_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

/// Roles of the parts that make the sound of a video.
inline constexpr const char *kSoundVae = "audio_vae", *kSoundScheduler = "audio_scheduler";

/// A component of a pipeline.
struct Part {
  std::string role;                  // "transformer", as its folder is called
  std::vector<std::string> classes;  // supported classes; random weights take the first
  bool optional = false;             // model_index.json may omit it or name [null, null]
  StoredNames names{};               // names of its tensors in files that do not use diffusers' names
  /// Return the part's sizes by its config.json, or by its tensors under diffusers' names (empty if they belong to
  /// another component). Null if the sizes are unknown.
  Sizes (*sizes_by_config)(const nlohmann::json& config, const std::string& file) = nullptr;
  Sizes (*sizes_by_tensors)(const TensorTable& tensors) = nullptr;
  /// Returns the unsupported model that has these tensors, such as "image to video"; empty if they show none. Null if
  /// the part is never checked for unsupported models.
  std::string (*other_model)(const TensorTable& tensors) = nullptr;
  /// Names of published files that hold the part, for errors; for a tokenizer, the repository.
  std::string published = {};
  std::string tokenizer_files = "spiece.model";  // for a tokenizer: the names of its files, for errors
};

/// Returns "google/umt5-xxl's spiece.model", for errors about a tokenizer.
std::string tokenizer_of(const Part& part);
/// Returns the remedy for a missing tokenizer, with the command that downloads it if the repository is known.
std::string tokenizer_remedy(const Part& part);

/// The layers of a family's transformers that LoRA files change, under diffusers' names.
struct LoraNames {
  std::string blocks;               // "blocks.", the prefix of a block's number
  std::vector<std::string> layers;  // matrices of a block; the input width of the first is the transformer's width
  std::string other_blocks = {};    // `blocks` in the names of the model's authors; empty if their names are the same
  /// The last words of layers that pruned files hold with fewer inputs: "adaln_proj.linear". A LoRA for the whole model
  /// changes the other layers of such a file.
  std::vector<std::string> pruned = {};
  /// The index in StoredNames::others of the transformer's names in files whose tensors also name PEFT's adapter; unset
  /// if they are like other files. A trainer that writes such names may keep the rows of fused layers in another order.
  std::optional<size_t> names_with_adapter = {};
  /// The layer that takes the latents, if a LoRA may widen its input so that a model for text takes an image
  /// (widened_input.h); empty if none may.
  std::string input = {};
  /// Changes a transformer's config to that of a model that also takes an image. Returns how many times as many input
  /// channels that model has; 1 if the config already is one. Throws Error naming `file` for a bad config. Null without
  /// `input`.
  int64_t (*take_image)(nlohmann::json& config, const std::string& file) = nullptr;
};

struct Family {
  std::string pipeline_class;                // as in model_index.json
  std::string name;                          // as people write it
  std::vector<std::string> other_classes{};  // more classes of the same model; its configs tell the task
  std::vector<Part> parts;                   // by their roles
  std::vector<std::string> settings{};       // scalars of model_index.json that describe() reads
  std::vector<std::string> fingerprint{};    // the family's keys of ModelSpec::fingerprint
  PromptRules prompt{};
  LoraNames lora{};
  std::vector<SamplerSpec> samplers;  // one for each class of the part "scheduler"
  /// Reads the configs of all parts except the scheduler, and nothing else. models::describe() adds the fields of this
  /// row. Throws Error naming file and field if a value is impossible or two configs contradict each other.
  ModelSpec (*describe)(const Checkpoint& checkpoint);

  const Part& part(std::string_view role) const;
  /// Returns all pipeline classes; the first is pipeline_class.
  std::vector<std::string> classes() const;
};

/// Returns every family, in the order of the help texts: those that families/rows.cpp lists, then those that were
/// added.
const std::vector<Family>& families();

/// Returns the error for a file whose part belongs to an unsupported model (Part::other_model).
Error unsupported_part(const std::filesystem::path& file, const std::string& role, const std::string& model);

/// Returns true if a part of this role has weights. Schedulers, tokenizers and image processors have none.
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
