// Opens the files of a checkpoint: JSON files, and weights in one file or in shards. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The remedy in errors about a damaged folder.
inline constexpr const char* kDownloadAgain =
    "download the folder again, or export it with diffusers' save_pretrained(safe_serialization=True)";

/// Reads a JSON file. Throws Error naming the file (and the line) if it is missing or malformed. If `remedy` is not
/// empty, it is used instead of kDownloadAgain, for files that do not belong to a checkpoint.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& remedy = {});

/// Reads the weight_map of a *.safetensors.index.json. Returns, for each tensor, the name of its shard's file. A shard
/// must be the plain name of a file in the index's folder. Throws Error naming `file` and the entry.
std::map<std::string, std::string> parse_weight_map(const nlohmann::json& index, const std::string& file);

/// Maps a tensor's name to the index of its file and its entry. The entry is the file's own, or one for the tensor's
/// rows within a larger tensor of the file.
using TensorTable = std::map<std::string, std::pair<size_t, const TensorEntry*>>;

/// The tensors of one file, or of the shards of a *.index.json, under the file's names.
struct StoredWeights {
  std::filesystem::path origin;  // the file, or the index
  std::vector<std::shared_ptr<TensorFile>> files = {};
  TensorTable tensors = {};
};

/// The name of one part of a split file: "model-00002-of-00005.gguf".
struct PartName {
  std::string stem, rest;  // "model", "-of-00005.gguf"
  size_t digits = 0;       // digits of the number, with leading zeros
  size_t number = 1, count = 1;

  /// Returns the name of part number `part`, counted from 1.
  std::string of(size_t part) const;
};
/// Parses the name of one part of a split file; returns nullopt for any other name.
std::optional<PartName> part_name(const std::filesystem::path& file);

/// Reads the headers of the file, of all shards if it is an index, or of all parts if it is one part of a split file.
/// Throws Error naming the file if it is damaged or if shards or parts are missing.
StoredWeights open_weights(const std::filesystem::path& file);

/// Finds the single file of weights in a component's folder, or the index of its shards. If there is neither, throws
/// Error listing the files of weights that are there.
std::filesystem::path weights_in(const std::filesystem::path& folder);

}  // namespace sparsereel::models
