// What a checkpoint folder holds and what it takes to run it, for `sparsereel inspect`. Reads JSON and headers only. No
// torch.
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
  std::string name;  // within the component's folder
  uint64_t bytes = 0;
};

struct ComponentSummary {
  std::string name;  // "transformer"
  std::string class_name;
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;                           // of the tensors
  uint64_t fp8_bytes = 0;                       // in bf16, but what fits in 8 bits; 0: nothing does, or nobody says
  std::map<std::string, uint64_t> dtypes = {};  // "BF16" -> parameters stored so
  std::vector<FileSummary> files = {};          // weights; none for scheduler and tokenizer
};

/// Bytes needed in one dtype for the video that the checkpoint was made for. Transformer (of several, one at a time)
/// and VAE are in memory together, as where several videos are made; the text encoder is there before them, alone, and
/// so is what encodes images.
struct MemoryEstimate {
  std::string dtype;  // "fp32", "bf16", "fp8" (bf16 with 8-bit weights where that is possible)
  uint64_t weights = 0;
  uint64_t activations = 0;
  uint64_t process = 0;                                    // the program itself, with its libraries
  std::vector<std::pair<int64_t, uint64_t>> of_each = {};  // of so many GPUs that make a video together: its total
  uint64_t total() const { return weights + activations + process; }
};

struct CheckpointSummary {
  std::string path;
  std::string family;                         // as families() name it
  std::string variant;                        // "2b layout (sine-cosine positions)"
  std::string pipeline_class;                 // of model_index.json
  int64_t width = 0, height = 0, frames = 0;  // pixels and frames that the checkpoint was made for
  std::vector<ComponentSummary> components;
  std::vector<MemoryEstimate> memory;  // of models/engine/memory_need.h, which summarize() leaves out

  uint64_t parameters() const;
  uint64_t bytes() const;
};

/// What a checkpoint was made for, where that is known better than from its transformer's config.json: 1.5's names a
/// square that its positions span, not a video.
struct VideoSize {
  std::optional<int64_t> width = {}, height = {}, frames = {};  // pixels, frames
};

/// fp8_bytes: of the components for which that is known. Throws Error as Checkpoint and the config parsers do.
CheckpointSummary summarize(const Checkpoint& checkpoint, const VideoSize& made_for = {},
                            const std::map<std::string, uint64_t>& fp8_bytes = {});

/// The same as JSON, keys named as the members; always valid UTF-8.
nlohmann::json to_json(const CheckpointSummary& summary);

}  // namespace sparsereel::models
