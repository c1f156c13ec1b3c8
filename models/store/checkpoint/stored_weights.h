// What a checkpoint's files hold, each by itself: JSON, and weights in one file or in shards. No torch.
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

/// The remedy for a damaged folder.
inline constexpr const char* kDownloadAgain =
    "download the folder again, or export it with diffusers' save_pretrained(safe_serialization=True)";

/// Reads a JSON file; throws Error naming the file (and the line) when it is missing or malformed. `remedy`: where it
/// is no part of a checkpoint.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& remedy = {});

/// weight_map of a *.safetensors.index.json: tensor -> file name of its shard. Throws Error naming `file` and the
/// entry; a shard must be the plain name of a file in that folder.
std::map<std::string, std::string> parse_weight_map(const nlohmann::json& index, const std::string& file);

/// Where each tensor lies, by the name that diffusers gives it: which of the files, and what that says of it, or of the
/// tensor whose rows these are.
using TensorTable = std::map<std::string, std::pair<size_t, const TensorEntry*>>;

/// What lies in one file, or in the shards of a *.index.json, by the names there.
struct StoredWeights {
  std::filesystem::path origin;  // the file, or the index
  std::vector<std::shared_ptr<TensorFile>> files = {};
  TensorTable tensors = {};
};

/// The name of one part of a file that was split: "model-00002-of-00005.gguf".
struct PartName {
  std::string stem, rest;  // "model", "-of-00005.gguf"
  size_t digits = 0;       // of the number, with zeros before it
  size_t number = 1, count = 1;

  /// The name of another part, counted from 1.
  std::string of(size_t part) const;
};
/// Nothing where the name is that of a whole file.
std::optional<PartName> part_name(const std::filesystem::path& file);

/// Reads headers of a file, of all shards of an index, or of all parts beside the one that is given. Throws Error
/// naming the file where it is damaged, and where shards or parts are missing.
StoredWeights open_weights(const std::filesystem::path& file);

/// The one file of weights in a component's folder, or the index of its shards. Throws Error saying what is there where
/// there is neither.
std::filesystem::path weights_in(const std::filesystem::path& folder);

}  // namespace sparsereel::models
