// What a family's diffusion transformer is made of. One loop runs them all (denoiser.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hilbert/token_order.h"
#include "models/layers/parameters.h"
#include "models/layers/residual.h"
#include "models/request/conditioning.h"
#include "models/request/spec.h"
#include "models/transformer/attend.h"
#include "models/transformer/context_keys.h"
#include "models/transformer/patches.h"
#include "models/transformer/shape_text.h"
#include "models/transformer/token_plan.h"

namespace sparsereel::models {

/// What one forward is given, on the run's device.
struct TransformerInput {
  at::Tensor latents;         // [B, ..] in the run's dtype, laid out as the family's latents are, with the channels
                              // of conditioning latents behind theirs where the model takes such
  Conditioning conditioning;  // of B passes, in the run's dtype
  at::Tensor timesteps;       // [B], whole or fractional
};

/// The grid of the patches of latents [B, channels, frames, height, width], or [B, frames, channels, height, width].
/// Throws Error where the latents do not have that form.
hilbert::Grid grid_of_patches(const at::Tensor& latents, int64_t channels, const PatchSize& patch,
                              const std::string& config_file, LatentLayout layout = LatentLayout::channels_first);
/// JointModulation of the video by rows of a table [R, rows, C], from `first` on: shift, scale and, of three, gate.
JointModulation modulation_rows(const at::Tensor& table, int64_t first, int64_t rows,
                                const at::Tensor& row_of_token = {});
/// Throws Error unless text and timesteps are one a row of the latents, and text is as wide as `field` of the config
/// says.
void check_conditions(const TransformerInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file);
/// Throws Error where there is more than a text: of a family that takes nothing else.
void check_text_alone(const TransformerInput& input, const std::string& config_file);

/// What flows through the blocks.
struct Tokens {
  Residual hidden;  // [B, N, C]: video tokens in the plan's order, and behind them text of the same width
  std::optional<Residual> text{};  // [B, L, C']: or text of a width of its own; unset: there is none
  int64_t text_tokens;             // that attend along with the video's, of one or the other
  at::Tensor key_lengths{};   // int64 [B]: how many of the video's and text's tokens are no padding; undefined: all
  at::Tensor time;            // the embeddings of the timesteps [R, T]
  at::Tensor row_of_token{};  // int64 [B, N]: of time and modulation, for each token of hidden; undefined: its entry's
  at::Tensor modulation{};    // [R, ..]: what all blocks' modulation starts from, where the model has such a thing
  at::Tensor context{};       // [B, L, C]: text for cross-attention
  at::Tensor context_bias{};  // fp32 [B, L], added to the context's scores; undefined: none
  at::Tensor
      image_context{};  // [1, L', C]: of images, for a softmax of its own; undefined: none, or all is in the keys
  std::shared_ptr<ContextKeys> image_keys{};  // of the layers' cross-attention to it; null: there is none
};

class Transformer {
 public:
  virtual ~Transformer() = default;

  virtual size_t layers() const = 0;
  /// Lists the tensors that belong to no layer.
  virtual void weights(const Visit& visit) = 0;
  /// Lists the tensors of a layer. They may be other ones in each of its runs.
  virtual void weights(size_t layer, const Visit& visit) = 0;

  /// The grid of the video tokens. Throws Error where the input does not fit the configuration.
  virtual hilbert::Grid grid_of(const TransformerInput& input) const = 0;
  /// Position tables of a grid, in native token order. Throws Error where the configuration excludes the grid.
  virtual TokenTables tables(const hilbert::Grid& grid) const = 0;

  virtual Tokens embed(const TransformerInput& input, const TokenPlan& plan) const = 0;
  virtual void block(size_t layer, Tokens& tokens, Attend& attend) const = 0;
  /// The prediction, shaped as the latents that are denoised.
  virtual at::Tensor head(Tokens& tokens, const TokenPlan& plan) const = 0;
};

}  // namespace sparsereel::models
