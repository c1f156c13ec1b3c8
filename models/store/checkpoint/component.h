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
#include "models/store/checkpoint/quantization.h"
#include "models/store/checkpoint/stored_weights.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

struct Part;  // family.h

/// A weight delta: a change, usually from a LoRA, that is added to a tensor when the tensor is read. The change is
/// scale * up * down, with up [out, rank] and down [rank, in].
struct WeightDelta {
  std::shared_ptr<const TensorFile> file;
  const TensorEntry* up = nullptr;
  const TensorEntry* down = nullptr;  // null if `up` is the whole change, in the tensor's shape
  double scale = 1;
  // Owns the entries `up` and `down` if they are not entries of `file`.
  std::vector<std::shared_ptr<const TensorEntry>> made = {};
};

/// Weight deltas by the name of the tensor that they change, in the order in which they are added.
using WeightDeltas = std::map<std::string, std::vector<WeightDelta>>;

/// One component (transformer, vae, text_encoder): its config and its weights, which are in memory-mapped files or
/// random.
struct Component {               // NOLINT(bugprone-exception-escape): json's noexcept move contains assertions
  std::string class_name;        // from model_index.json
  std::filesystem::path origin;  // the folder of the weights, or their single file
  nlohmann::json config;
  std::string config_file;
  std::vector<std::shared_ptr<TensorFile>> files;  // one file, or the shards in order
  TensorTable tensors;
  // Owns the entries in `tensors` that are not a file's own, such as a part of a file's tensor.
  std::vector<std::shared_ptr<const TensorEntry>> parts = {};
  // The quantized layers, by the names of their weights. `tensors` lists these weights with the shape and dtype that
  // they have in memory.
  QuantizedLayers quantized = {};
  std::optional<uint64_t> random_seed = {};  // set if there are no files: every tensor is made from this seed
  /// If not null, collects the number of elements of each random tensor that a module asks for, by name.
  std::shared_ptr<std::map<std::string, uint64_t>> counted = {};
  std::shared_ptr<std::vector<std::string>> left_out = {};  // names and shapes of tensors that no module asked for
  WeightDeltas deltas = {};                                 // changes to tensors of the component
  /// Shapes of tensors that get additional columns when they are read. The new columns are zero until a delta changes
  /// them.
  std::map<std::string, std::vector<int64_t>> widened = {};
  std::string prefix = {};         // prefix of every name in the file, after wrappers are stripped
  const NameMap* names = nullptr;  // maps diffusers' names to the names in the file; null if they are equal
  std::string doubt = {};          // a warning if the file does not show for certain which `names` it follows
  bool by_itself = false;          // true if the weights are a single file, not a folder in diffusers' layout

  /// Returns the shape in which a tensor is read.
  const std::vector<int64_t>& shape_of(const std::string& tensor) const;
  uint64_t parameter_count() const;
  uint64_t bytes() const;
  /// Throws Error naming the file if a file of the component, or of its weight deltas, became shorter since it was
  /// opened.
  void check_whole() const;
  /// Returns the name that the file has, or would have, for a tensor with diffusers' name `name`.
  std::string name_in_file(const std::string& name) const;
};

/// Makes a component for this part from weights, without a config or a check of sizes. If the file holds several
/// components, only tensors whose names have the part's prefixes are taken.
Component component_of(const StoredWeights& weights, const Part& part);

}  // namespace sparsereel::models
