// Where the weights of a run stay on a machine with a GPU. A plan changes time and memory, never the latents. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsereel::models {

constexpr double kBytesOfGibibyte = 1024.0 * 1024.0 * 1024.0;

/// Decides how many of the transformer's blocks stay on the GPU.
enum class Offload {
  automatic,  // as many blocks as memory allows
  on,         // none
  off,        // all
};
/// Returns "auto", "on" or "off".
std::string_view name(Offload offload);
/// Parses the texts that name() returns, and true and yes for on, false and no for off. Throws Error for other texts.
Offload parse_offload(const std::string& text);

struct MemoryPlan {
  int64_t blocks = 0;    // blocks of a transformer
  int64_t resident = 0;  // blocks that stay on the GPU; the others are streamed: copied to it when they are needed
  /// Streamed blocks in host memory that is not page-locked, because page-locked memory is limited.
  int64_t pageable = 0;
  /// Streamed blocks that each step reads from their file, because the host lacks memory.
  int64_t from_file = 0;
  int64_t experts = 1;        // transformers that stay in memory together
  bool streams_text = false;  // the text encoder's layers pass through the GPU one by one
  bool tiles = false;         // the VAE decodes in tiles
  bool frees_vae = false;     // the decoder leaves the GPU before the transformer computes
  uint64_t gpu_bytes = 0;     // bytes of GPU memory that the run may use
  uint64_t weight_bytes = 0;  // bytes of GPU memory for the transformer's weights and the buffers of streamed blocks
  uint64_t pinned_bytes = 0;  // bytes of page-locked host memory
  uint64_t host_bytes = 0;    // bytes of all host memory for weights
  double step_seconds = 0;    // expected seconds of a step; 0 if unknown
  bool fits = true;           // false if memory is expected to run out even with this plan

  int64_t streamed() const { return blocks - resident; }
  bool streams() const { return resident < blocks; }
  bool operator==(const MemoryPlan&) const = default;
};

/// Returns the plan in one line: "12 of 40 blocks of the transformer stay in 24.0 GiB of the GPU; 28 are copied to it
/// in turn ...".
std::string sentence(const MemoryPlan& plan);

}  // namespace sparsereel::models
