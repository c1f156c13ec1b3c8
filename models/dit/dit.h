// What the pipeline knows of a denoiser, whatever its family.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "attention/attention.h"
#include "hilbert/token_order.h"
#include "models/checkpoint/model_folder.h"

namespace sparsereel::models {

/// What a call of attention::attend() is given, the prologue not yet applied. References hold during the watcher's
/// call.
struct AttentionCall {
  const at::Tensor &q, &k, &v;  // [B, N, heads, head_dim], video tokens in the run's order, then text
  const attention::Context& context;
  const hilbert::Grid& grid;  // of the video tokens
};

/// How attention runs in one forward, and what it reported.
struct AttentionRun {
  attention::Mode mode = attention::Mode::full;
  attention::Policy policy;
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  int64_t step = 0;
  std::function<void(const AttentionCall&)> watcher;  // sees each call before it runs; empty: nobody looks
  std::function<void()> attended;                     // likewise after each call
  bool collects = true;              // false: forward() does not wait for a GPU's counts, collect() fetches them
  attention::Statistics statistics;  // summed over layers and forwards
  std::vector<attention::Statistics> per_layer;  // likewise, one a layer
  // Of Denoising: [step][layer] of what was committed, and the steps that were redone with full attention.
  std::vector<std::vector<attention::Statistics>> per_step;
  std::vector<int64_t> redone_steps;
  std::string kernel;  // what ran last
};

class Dit {
 public:
  virtual ~Dit() = default;

  /// latents [B, F, C, H, W], text [B, L, text_dim], timesteps [B]; returns the prediction [B, F, C, H, W] in the
  /// latents' dtype.
  virtual at::Tensor forward(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps,
                             AttentionRun& run) = 0;
  /// Adds what GPU kernels counted since the last collection to the run's statistics; waits for the device.
  virtual void collect(AttentionRun& run) = 0;
  /// Video tokens of latents [.., F, C, H, W].
  virtual hilbert::Grid token_grid(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const = 0;
};

/// offload: the blocks stay in page-locked host memory, two of them are on the GPU at a time.
std::unique_ptr<Dit> load_cogvideox_dit(const Component& component, at::Device device, at::ScalarType dtype,
                                        bool offload = false);

}  // namespace sparsereel::models
