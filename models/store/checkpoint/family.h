// The model families that this program runs, one row each: what model_index.json may name, and what is to be known of a
// checkpoint before any weight is read. A row stands in its family's file in families/, which rows.cpp lists. No torch:
// components.h has what loads weights.
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

/// Sizes that a component's config says and its tensors show: {"num_layers", 30}. What they do not show is left out.
using Sizes = std::map<std::string, int64_t>;

/// A field of a config as ModelSpec::marks has it.
inline std::string mark_of(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

/// A component of a pipeline.
struct Part {
  std::string role;                  // "transformer", as its folder is called
  std::vector<std::string> classes;  // that are supported; random weights take the first
  bool optional = false;             // model_index.json may leave it out, or name [null, null]
  StoredNames names{};               // of its tensors, in files that are not diffusers'
  /// By its config.json, and by its tensors under diffusers' names: none where these are another component's. Null: not
  /// known of this one.
  Sizes (*sizes_by_config)(const nlohmann::json& config, const std::string& file) = nullptr;
  Sizes (*sizes_by_tensors)(const TensorTable& tensors) = nullptr;
  /// Which model that no family runs has these tensors: "image to video"; empty: none that is known. Null: likewise.
  std::string (*other_model)(const TensorTable& tensors) = nullptr;
  /// As what others publish it, for errors: names of files; of a tokenizer the repository.
  std::string published = {};
};

/// The layers of a family's transformers that LoRA files change, by diffusers' names.
struct LoraNames {
  std::string blocks;               // "blocks.", what a block's number follows
  std::vector<std::string> layers;  // matrices of a block; the first takes the block's width
  std::string other_blocks = {};    // as blocks, by the names of the model's authors; empty: the same
};

struct Family {
  std::string pipeline_class;                // of model_index.json
  std::string name;                          // for people
  std::vector<std::string> other_classes{};  // as pipeline_class: which task they name, the configs tell
  std::vector<Part> parts;                   // by their roles
  std::vector<std::string> settings{};       // scalars of model_index.json that describe() reads
  std::vector<std::string> marks{};          // keys of ModelSpec::marks
  PromptRules prompt{};
  LoraNames lora{};
  std::vector<SamplerSpec> samplers;  // one of each class of the part "scheduler"
  /// Reads the configs of all parts but the scheduler's, and nothing else; describe() adds what the row says. Throws
  /// Error naming file and field where one is impossible, or where two do not fit each other.
  ModelSpec (*describe)(const Checkpoint& checkpoint);

  const Part& part(std::string_view role) const;
  /// The first is pipeline_class.
  std::vector<std::string> classes() const;
};

/// Every family, in the order in which help texts list them: those that families/rows.cpp lists, and what was added.
const std::vector<Family>& families();

/// That the file's part is one of another model, as Part::other_model names it.
Error unsupported_part(const std::filesystem::path& file, const std::string& role, const std::string& model);

/// Whether a part of this role has weights: what schedules, and what prepares texts and images, has none.
bool has_weights(std::string_view role);

/// To be called before any checkpoint is opened.
void add_family(Family row);

/// Those that rows.cpp lists.
std::vector<Family> published_families();

/// The family of a pipeline class; nullptr where it is not supported.
const Family* find_family(std::string_view pipeline_class);

/// What an architecture that stands for a checkpoint may hold (Checkpoint::with_random_weights), of all families:
/// components and scalars, each once.
std::vector<std::string> architecture_keys();

/// Keys of ModelSpec::marks of all families, each once.
std::vector<std::string> all_marks();

/// Samplers of all families, each once.
std::vector<SamplerSpec> all_samplers();

}  // namespace sparsereel::models
