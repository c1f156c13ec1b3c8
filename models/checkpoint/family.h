// The model families that this program runs, one row each: what model_index.json may name, and what is to be known of a
// checkpoint before any weight is read. A row stands in its family's file in families/, which rows.cpp lists. No torch:
// components.h has what loads weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/video/spec.h"

namespace sparsereel::models {

class ModelFolder;

/// A component of a pipeline folder.
struct Part {
  std::string role;                  // "transformer", as its folder is called
  std::vector<std::string> classes;  // that are supported; random weights take the first
  bool optional = false;             // model_index.json may leave it out, or name [null, null]
};

/// How LoRA files name the layers of a family's transformers.
struct LoraNames {
  std::string blocks;                                   // "blocks.", what a block's number follows
  std::vector<std::string> layers;                      // matrices of a block; the first takes the block's width
  std::string (*original)(std::string name) = nullptr;  // as the authors of the model name it; null: alike
};

struct Family {
  std::string pipeline_class;           // of model_index.json
  std::string name;                     // for people
  std::vector<Part> parts;              // by their roles
  std::vector<std::string> settings{};  // scalars of model_index.json that describe() reads
  std::vector<std::string> marks{};     // keys of ModelSpec::marks
  PromptRules prompt{};
  LoraNames lora{};
  std::vector<SamplerSpec> samplers;  // one of each class of the part "scheduler"
  /// Reads the configs of all parts but the scheduler's, and nothing else; describe() adds what the row says. Throws
  /// Error naming file and field where one is impossible, or where two do not fit each other.
  ModelSpec (*describe)(const ModelFolder& folder);
  /// The repository that has a checkpoint in diffusers' layout, of which path is a file or folder in another one; empty
  /// where it is none of the family's. Null: no other layout is known.
  std::string (*repository_of)(const std::filesystem::path& path) = nullptr;

  const Part& part(std::string_view role) const;
};

/// Every family, in the order in which help texts list them.
const std::vector<Family>& families();

/// Those that rows.cpp lists, which are all that the program has.
std::vector<Family> published_families();

/// The family of a pipeline class; nullptr where it is not supported.
const Family* find_family(std::string_view pipeline_class);

/// The one of this class, which is among them.
const SamplerSpec& find_sampler(const std::vector<SamplerSpec>& samplers, std::string_view class_name);

/// What the folder's family says of it.
ModelSpec describe(const ModelFolder& folder);

/// What an architecture that stands for a checkpoint may hold (ModelFolder::with_random_weights), of all families:
/// components and scalars, each once.
std::vector<std::string> architecture_keys();

/// Keys of ModelSpec::marks of all families, each once.
std::vector<std::string> all_marks();

/// Samplers of all families, each once.
std::vector<SamplerSpec> all_samplers();

}  // namespace sparsereel::models
