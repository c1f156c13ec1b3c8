// One component of a checkpoint: its config and its weights, under diffusers' names. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/name_map.h"
#include "models/store/checkpoint/stored_weights.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

struct Part;  // family.h

/// What is added to a tensor when it is read: scale x up x down, matrices [out, rank] and [rank, in].
struct WeightDelta {
  std::shared_ptr<const TensorFile> file;
  const TensorEntry* up = nullptr;
  const TensorEntry* down = nullptr;  // null: `up` is the difference itself, in the tensor's shape
  double scale = 1;
  std::vector<std::shared_ptr<const TensorEntry>> made = {};  // `up` and `down`, where they are no entries of the file
};

/// By the tensor's name, each in the order in which they are added.
using WeightDeltas = std::map<std::string, std::vector<WeightDelta>>;

/// One component (transformer, vae, text_encoder): its config, and its weights in memory-mapped files or made up.
struct Component {               // NOLINT(bugprone-exception-escape): json asserts inside its noexcept move
  std::string class_name;        // from model_index.json
  std::filesystem::path origin;  // the folder of the weights, or their one file
  nlohmann::json config;
  std::string config_file;
  std::vector<std::shared_ptr<TensorFile>> files;  // one, or the shards in order
  TensorTable tensors;
  std::vector<std::shared_ptr<const TensorEntry>> parts = {};  // of files' tensors, that the table points to
  std::optional<uint64_t> random_seed = {};  // no files: whatever is asked for is there, made from this seed
  std::shared_ptr<std::map<std::string, uint64_t>> counted = {};  // gets the elements of each one that is asked for
  std::shared_ptr<std::vector<std::string>> left_out = {};        // gets names and shapes that no module asked for
  WeightDeltas deltas = {};                                       // to its tensors
  std::string prefix = {};                                        // of every name in the file, without wrappers
  const NameMap* names = nullptr;                                 // diffusers', and those of the file; null: the same
  bool by_itself = false;  // its weights are named by themselves, not as a folder of diffusers'

  uint64_t parameter_count() const;
  uint64_t bytes() const;
  /// Throws Error naming the file where one of its files, or of its deltas', got shorter since it was opened.
  void check_whole() const;
  /// What the file calls a tensor, or would.
  std::string name_in_file(const std::string& name) const;
};

/// These weights as a component of this part: no config, and nothing is known of what it holds. Of a file of several
/// components, the tensors under the part's prefixes.
Component component_of(const StoredWeights& weights, const Part& part);

}  // namespace sparsereel::models
