// Summarizes a checkpoint folder and the memory that running it takes, for `sparsereel inspect`. Reads JSON and headers
// only. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::models {

class Checkpoint;

struct FileSummary {
  std::string name;  // path within the component's folder
  uint64_t bytes = 0;
};

struct ComponentSummary {
  std::string name;  // "transformer"
  std::string class_name;
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;      // bytes of the tensors
  uint64_t fp8_bytes = 0;  // bytes in bf16, with 8 bits where possible; 0 if unknown or if no weight can be in 8 bits
  std::map<std::string, uint64_t> dtypes = {};  // number of parameters stored in each dtype ("BF16")
  std::vector<FileSummary> files = {};          // weights; none for scheduler and tokenizer
};

/// Bytes needed in one dtype for the video that the checkpoint was made for. VAE and transformer (one at a time, if
/// there are several) are in memory together, as when several videos are made. Text and image encoders run alone,
/// before VAE and transformer.
struct MemoryEstimate {
  std::string dtype;  // "fp32", "bf16", "fp8" (bf16 with 8-bit weights where possible)
  uint64_t weights = 0;
  uint64_t activations = 0;
  uint64_t process = 0;  // bytes of the program itself, with its libraries
  /// The number of GPUs that make one video together, and the total for each GPU.
  std::vector<std::pair<int64_t, uint64_t>> of_each = {};
  uint64_t total() const { return weights + activations + process; }
};

struct CheckpointSummary {
  std::string path;
  std::string family;                         // name in families()
  std::string variant;                        // "2b layout (sine-cosine positions)"
  std::string pipeline_class;                 // from model_index.json
  int64_t width = 0, height = 0, frames = 0;  // pixels and frames that the checkpoint was made for
  std::string license;                        // ModelSpec::license
  std::vector<ComponentSummary> components;
  std::vector<MemoryEstimate> memory;  // filled by models/engine/memory_need.h, not by summarize()

  uint64_t parameters() const;
  uint64_t bytes() const;
};

/// The video that a checkpoint was made for. It is given if the transformer's config.json misleads: that file may give
/// the square that the positions cover.
struct VideoSize {
  std::optional<int64_t> width = {}, height = {}, frames = {};  // pixels, frames
};

/// Summarizes a checkpoint. `fp8_bytes` holds ComponentSummary::fp8_bytes by role, as far as known. Throws Error as
/// Checkpoint and the config parsers do.
CheckpointSummary summarize(const Checkpoint& checkpoint, const VideoSize& made_for = {},
                            const std::map<std::string, uint64_t>& fp8_bytes = {});

/// Returns the summary as JSON with the members' names as keys; always valid UTF-8.
nlohmann::json to_json(const CheckpointSummary& summary);

}  // namespace sparsereel::models
