// The interface of a family's diffusion transformer. One loop runs them all (loaded_transformer.h).
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

/// The input of one forward pass, on the run's device.
struct TransformerInput {
  /// [B, ..] in the run's dtype and the family's layout. If the model takes conditioning latents as channels, they come
  /// last.
  at::Tensor latents;
  Conditioning conditioning;  // B passes, in the run's dtype
  at::Tensor timesteps;       // [B], whole or fractional
};

/// Returns the grid of the patches of latents [B, channels, frames, height, width], or [B, frames, channels, height,
/// width]. Throws Error if the latents do not have that form.
hilbert::Grid grid_of_patches(const at::Tensor& latents, int64_t channels, const PatchSize& patch,
                              const std::string& config_file, LatentLayout layout = LatentLayout::channels_first);
/// Returns the modulation vectors of the video tokens from a table [R, .., C]: its rows first and first + 1 are shift
/// and scale. If `rows` is 3, the next row is the gate; otherwise there is none.
JointModulation modulation_rows(const at::Tensor& table, int64_t first, int64_t rows,
                                const at::Tensor& row_of_token = {});
/// Throws Error unless the latents have one text and one timestep per entry, and the text has the width that `field` of
/// the config says.
void check_conditions(const TransformerInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file);
/// Throws Error if the conditioning has more than a text, for a family that takes only text.
void check_text_alone(const TransformerInput& input, const std::string& config_file);

/// The tensors that flow through the blocks.
struct Tokens {
  Residual hidden;                 // [B, N, C]: video tokens in the plan's order, then text if it has the same width
  std::optional<Residual> text{};  // [B, L, C']: text tokens of another width than the video's; unset if there are none
  int64_t text_tokens;             // text tokens that attend together with the video tokens, in `hidden` or `text`
  at::Tensor key_lengths{};        // int64 [B]: tokens of video and text before the padding; undefined for all
  at::Tensor time;                 // embeddings of the timesteps [R, T]
  /// int64 [B, N]: for each token of `hidden`, its row of `time` and `modulation`; undefined if each token uses the row
  /// of its batch entry
  at::Tensor row_of_token{};
  at::Tensor modulation{};    // [R, ..]: the start of all blocks' modulation, if the model has one
  at::Tensor context{};       // [B, L, C]: text for cross-attention
  at::Tensor context_bias{};  // fp32 [B, L], added to the context's scores; undefined if not needed
  /// [1, L', C]: image tokens, attended to with a separate softmax. Undefined if there are none, or if image_keys holds
  /// the keys of all layers.
  at::Tensor image_context{};
  /// keys of image_context for the layers' cross-attention; null if there are none
  std::shared_ptr<ContextKeys> image_keys{};
};

class Transformer {
 public:
  virtual ~Transformer() = default;

  virtual size_t layers() const = 0;
  /// Lists the tensors that belong to no layer.
  virtual void weights(const Visit& visit) = 0;
  /// Lists the tensors of a layer. Each time the layer runs, they may be at another address.
  virtual void weights(size_t layer, const Visit& visit) = 0;

  /// Returns the grid of the video tokens. Throws Error if the input does not fit the configuration.
  virtual hilbert::Grid grid_of(const TransformerInput& input) const = 0;
  /// Returns the position tables of a grid, in native token order. Throws Error if the configuration excludes the grid.
  virtual TokenTables tables(const hilbert::Grid& grid) const = 0;

  virtual Tokens embed(const TransformerInput& input, const TokenPlan& plan) const = 0;
  virtual void block(size_t layer, Tokens& tokens, Attend& attend) const = 0;
  /// Returns the prediction in the shape of the latents that are denoised.
  virtual at::Tensor head(Tokens& tokens, const TokenPlan& plan) const = 0;
};

}  // namespace sparsereel::models
