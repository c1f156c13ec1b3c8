// Summarizes a checkpoint and the memory that a run of it takes, for `sparsereel inspect`. Reads only JSON and headers.
// No torch.
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
  std::string name;  // the file's name, without its folder
  uint64_t bytes = 0;
};

struct ComponentSummary {
  std::string name;  // "transformer"
  std::string class_name;
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // bytes of the tensors
  // Size with 8-bit weights where possible and bf16 for the rest; 0 if unknown, or if no weight can have 8 bits.
  uint64_t fp8_bytes = 0;
  std::map<std::string, uint64_t> dtypes = {};  // number of parameters stored in each dtype ("BF16")
  std::vector<FileSummary> files = {};          // files of weights; none for scheduler and tokenizer
};

/// The memory in bytes that a run needs in one dtype, for a video of the size for which the checkpoint was made. It is
/// the largest need of three stages: the text encoder alone, the encoder of images alone, and the VAE together with one
/// transformer. The VAE and the transformer stay in memory together if several videos are made.
struct MemoryEstimate {
  std::string dtype;  // "fp32", "bf16", "fp8" (bf16 with 8-bit weights where possible)
  uint64_t weights = 0;
  uint64_t activations = 0;
  uint64_t process = 0;  // the program itself, with its libraries
  /// Pairs of a number of GPUs that make one video together, and the total for each of these GPUs.
  std::vector<std::pair<int64_t, uint64_t>> of_each = {};
  uint64_t total() const { return weights + activations + process; }
};

struct CheckpointSummary {
  std::string path;
  std::string family;                         // Family::name
  std::string variant;                        // "2b layout (sine-cosine positions)"
  std::string pipeline_class;                 // from model_index.json
  int64_t width = 0, height = 0, frames = 0;  // size in pixels, and frames, for which the checkpoint was made
  std::string license;                        // ModelSpec::license
  std::vector<ComponentSummary> components;
  std::vector<MemoryEstimate> memory;  // filled by models/engine/memory_need.h, not by summarize()

  uint64_t parameters() const;
  uint64_t bytes() const;
};

/// The size of the video for which a checkpoint was made, if known from elsewhere. The size in the transformer's
/// config.json may mislead, because some configs give the square that the positions cover.
struct VideoSize {
  std::optional<int64_t> width = {}, height = {}, frames = {};  // pixels, frames
};

/// Summarizes a checkpoint. Sizes in `made_for` replace those of the config. `fp8_bytes` gives
/// ComponentSummary::fp8_bytes by role, as far as known. Throws Error as Checkpoint and the config parsers do.
CheckpointSummary summarize(const Checkpoint& checkpoint, const VideoSize& made_for = {},
                            const std::map<std::string, uint64_t>& fp8_bytes = {});

/// Returns the summary as JSON with the members' names as keys; always valid UTF-8.
nlohmann::json to_json(const CheckpointSummary& summary);

}  // namespace sparsereel::models
