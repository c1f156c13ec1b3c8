// A diffusers-layout checkpoint folder: model_index.json, component folders, their config.json and weight files. No
// torch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Reads a JSON file; throws Error naming the file (and the line) when it is missing or malformed. `remedy`: where it
/// is no part of a checkpoint.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& remedy = {});

/// Checks the content of a model_index.json and returns its pipeline class: a known family (family.h) that names every
/// component it needs, each of a supported class. Throws Error naming `file` and the entry.
std::string check_model_index(const nlohmann::json& index, const std::string& file);

/// weight_map of a *.safetensors.index.json: tensor -> file name of its shard. Throws Error naming `file` and the
/// entry; a shard must be the plain name of a file in that folder.
std::map<std::string, std::string> parse_weight_map(const nlohmann::json& index, const std::string& file);

/// What is added to a tensor when it is read: scale x up x down, matrices [out, rank] and [rank, in].
struct WeightDelta {
  std::shared_ptr<const TensorFile> file;
  const TensorEntry* up = nullptr;
  const TensorEntry* down = nullptr;  // null: `up` is the difference itself, in the tensor's shape
  double scale = 1;
};

/// By the tensor's name, each in the order in which they are added.
using WeightDeltas = std::map<std::string, std::vector<WeightDelta>>;

/// One component (transformer, vae, text_encoder): its config and its memory-mapped weights, single or sharded, or
/// random ones.
struct Component {         // NOLINT(bugprone-exception-escape): json asserts inside its noexcept move
  std::string class_name;  // from model_index.json
  std::filesystem::path folder;
  nlohmann::json config;
  std::string config_file;
  std::vector<std::shared_ptr<TensorFile>> files;                        // one, or the shards in order
  std::map<std::string, std::pair<size_t, const TensorEntry*>> tensors;  // name -> (index into files, entry)
  std::optional<uint64_t> random_seed = {};  // no files: whatever is asked for is there, made from this seed
  WeightDeltas deltas = {};                  // to its tensors

  uint64_t parameter_count() const;
  uint64_t bytes() const;
};

/// A pipeline folder, or an architecture that stands for one. Opening reads only JSON; weights are mapped by
/// component().
class ModelFolder {  // NOLINT(bugprone-exception-escape): as above
 public:
  /// Throws Error when the folder or its model_index.json is missing, malformed or of an unsupported pipeline class.
  static ModelFolder open(const std::filesystem::path& path);
  /// A pipeline without weights: `architecture` holds each component's config.json under the component's name, and the
  /// weights are random. It has no tokenizer. Throws Error naming `file` when a component is missing or no family has
  /// this transformer class.
  static ModelFolder with_random_weights(const std::filesystem::path& file, const std::string& transformer_class,
                                         const nlohmann::json& architecture, uint64_t seed = 0);

  const std::filesystem::path& path() const { return path_; }  // the file of the architecture where weights are random
  bool has_random_weights() const { return random_seed_.has_value(); }
  const std::string& pipeline_class() const { return pipeline_class_; }
  /// What it is read from: the index and the folder of each component that this names; the file of the architecture.
  std::vector<std::filesystem::path> places() const;
  /// Those of the family's parts that this checkpoint has, in the family's order.
  std::vector<std::string> roles() const;
  std::string component_class(const std::string& name) const;
  /// A scalar of model_index.json, or of the architecture that stands for it; null where there is none.
  nlohmann::json setting(const std::string& name) const;
  /// Maps the weights of a component: diffusion_pytorch_model.safetensors or model.safetensors, or the shards of the
  /// *.index.json beside it. Missing shards, a tensor in no shard or in two, or an index that disagrees with the files:
  /// one Error. What was opened once stays open: the folder may then be moved.
  const Component& component(const std::string& name) const;
  /// From now on its weights are read with these added.
  void add(const std::string& component, const WeightDeltas& deltas);
  /// config.json of a component (scheduler_config.json of the scheduler) without touching weights.
  nlohmann::json config(const std::string& name, std::string* file = nullptr) const;

 private:
  Component open_component(const std::string& name) const;

  std::filesystem::path path_;
  mutable std::map<std::string, Component> opened_;
  std::string pipeline_class_;
  nlohmann::json index_;
  nlohmann::json architecture_;  // with random weights
  std::optional<uint64_t> random_seed_;
};

}  // namespace sparsereel::models
