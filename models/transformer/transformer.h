// The interface of a family's diffusion transformer. One loop runs them all (loaded_transformer.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hilbert/token_order.h"
#include "models/layers/parameters.h"
#include "models/layers/residual.h"
#include "models/request/spec.h"
#include "models/transformer/attend.h"
#include "models/transformer/context_keys.h"
#include "models/transformer/patches.h"
#include "models/transformer/shape_text.h"
#include "models/transformer/token_plan.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

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
  at::Tensor modulation{};  // [R, ..]: the start of all blocks' modulation, if the model has one
  /// int64 [R]: the rows of the modulation that the blocks computed beforehand (make_modulation()), if they did
  at::Tensor modulation_rows{};
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

  /// Returns true if the model reads latents in fp32 in a run of any dtype.
  virtual bool reads_wide_latents() const { return false; }
  /// Returns the grid of the video tokens. Throws Error if the input does not fit the configuration.
  virtual hilbert::Grid grid_of(const TransformerInput& input) const = 0;
  /// Returns the position tables of a grid, in native token order. Throws Error if the configuration excludes the grid.
  virtual TokenTables tables(const hilbert::Grid& grid) const = 0;
  /// Returns the position tables of an input, for families whose tables depend on more than the grid. `positions_key`
  /// then differs for inputs whose tables differ.
  virtual TokenTables tables_of(const TransformerInput& /*input*/, const hilbert::Grid& grid) const {
    return tables(grid);
  }
  virtual std::vector<int64_t> positions_key(const TransformerInput& /*input*/) const { return {}; }

  // Modulation that depends on nothing but the timestep may need more weights than everything else. Such a family lists
  // these weights here. They are not kept: each layer's weights are on the device only while its modulation for the
  // timesteps of all steps is computed.
  /// Lists a layer's weights that only its modulation needs.
  virtual void modulation_weights(size_t /*layer*/, const Visit& /*visit*/) {}
  /// Returns true if the modulation for these timesteps is not known yet.
  virtual bool lacks_modulation(const StepTimes& /*times*/) const { return false; }
  /// Forgets all modulation. make_modulation() then follows for each layer.
  virtual void begin_modulation(const StepTimes& /*times*/) {}
  /// Computes the layer's modulation for the timesteps. The layer's modulation_weights() are on the device.
  virtual void make_modulation(size_t /*layer*/) {}

  virtual Tokens embed(const TransformerInput& input, const TokenPlan& plan) const = 0;
  virtual void block(size_t layer, Tokens& tokens, Attend& attend) const = 0;
  /// Returns the prediction in the shape of the latents that are denoised.
  virtual at::Tensor head(Tokens& tokens, const TokenPlan& plan) const = 0;
  /// Returns the prediction for the sound, if the model makes sound; otherwise an undefined tensor.
  virtual at::Tensor sound_head(Tokens& /*tokens*/) const { return {}; }
};

}  // namespace sparsereel::models
