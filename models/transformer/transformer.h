// The interface of a family's diffusion transformer. One loop (loaded_transformer.h) runs the transformers of all
// families.
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
/// width]. Throws Error naming config_file if the latents have another shape, or do not consist of whole patches.
hilbert::Grid grid_of_patches(const at::Tensor& latents, int64_t channels, const PatchSize& patch,
                              const std::string& config_file, LatentLayout layout = LatentLayout::channels_first);
/// Returns the modulation vectors of the video tokens from a table [R, K, C] of K vectors in each of R sets. Vector
/// `first` of a set is the shift, first + 1 the scale, and, if `rows` is 3, first + 2 the gate.
JointModulation modulation_rows(const at::Tensor& table, int64_t first, int64_t rows,
                                const at::Tensor& row_of_token = {});
/// Throws Error unless each batch entry of the latents has one text and one timestep, and the text has the width
/// text_dim (called `field` in the config).
void check_conditions(const TransformerInput& input, int64_t text_dim, const std::string& field,
                      const std::string& config_file);
/// Throws Error if the conditioning has anything but a text. For families that take only text.
void check_text_alone(const TransformerInput& input, const std::string& config_file);

/// The tensors that flow through the blocks.
struct Tokens {
  Residual hidden;                 // [B, N, C]: video tokens in the plan's order, then text if it has the same width
  std::optional<Residual> text{};  // [B, L, C']: text tokens, if their width differs from the video's; unset otherwise
  int64_t text_tokens;             // number of text tokens, in `hidden` or `text`, that attend together with the video
  // int64 [B]: number of tokens of video and text before the padding; undefined if there is no padding.
  at::Tensor key_lengths{};
  at::Tensor time;  // embeddings of the timesteps [R, T]
  /// int64 [B, N]: for each token of `hidden`, its row of `time` and `modulation`. Undefined if each token uses the row
  /// of its batch entry.
  at::Tensor row_of_token{};
  at::Tensor modulation{};  // [R, ..]: modulation from which all blocks derive theirs; undefined if the model has none
  /// int64 [R]: used instead of `time` and `modulation` by families with make_modulation(). row_of_token gives an index
  /// into this tensor; the element there is a row of the modulation that make_modulation() has computed. Undefined for
  /// other families.
  at::Tensor modulation_rows{};
  at::Tensor context{};       // [B, L, C]: text for cross-attention
  at::Tensor context_bias{};  // fp32 [B, L], added to the scores of the context's keys; undefined if not needed
  /// [1, L', C]: image tokens, to which cross-attention attends with a separate softmax. Undefined if there are none,
  /// or if image_keys already has the keys of all layers.
  at::Tensor image_context{};
  /// Keys and values of image_context for each layer's cross-attention. Null if there are no image tokens.
  std::shared_ptr<ContextKeys> image_keys{};
};

class Transformer {
 public:
  virtual ~Transformer() = default;

  virtual size_t layers() const = 0;
  /// Lists the tensors that belong to no layer (block).
  virtual void weights(const Visit& visit) = 0;
  /// Lists the tensors of a layer. If layers are streamed, the tensors' memory may be at another address each time the
  /// layer runs.
  virtual void weights(size_t layer, const Visit& visit) = 0;

  /// Returns true if the model reads latents in fp32 in a run of any dtype.
  virtual bool reads_wide_latents() const { return false; }
  /// Returns the grid of the video tokens. Throws Error if the input does not fit the configuration.
  virtual hilbert::Grid grid_of(const TransformerInput& input) const = 0;
  /// Returns the position tables of a grid, in native token order. Throws Error if the configuration does not allow the
  /// grid.
  virtual TokenTables tables(const hilbert::Grid& grid) const = 0;
  /// Returns the position tables of an input. Families whose tables depend on more than the grid override this; they
  /// must also override positions_key() so that inputs with one grid but different tables have different keys.
  virtual TokenTables tables_of(const TransformerInput& /*input*/, const hilbert::Grid& grid) const {
    return tables(grid);
  }
  virtual std::vector<int64_t> positions_key(const TransformerInput& /*input*/) const { return {}; }

  // The four functions below are for families whose modulation depends only on the timestep, but needs more weights
  // than the rest of the model. These weights are not kept: a layer's modulation weights are on the device only while
  // its modulation for the timesteps of all steps is computed.
  /// Lists a layer's weights that only its modulation needs.
  virtual void modulation_weights(size_t /*layer*/, const Visit& /*visit*/) {}
  /// Returns true if the modulation for these timesteps has not been computed yet.
  virtual bool lacks_modulation(const StepTimes& /*times*/) const { return false; }
  /// Forgets all modulation, and sets the timesteps for make_modulation(), which must then be called once for each
  /// layer.
  virtual void begin_modulation(const StepTimes& /*times*/) {}
  /// Computes the layer's modulation for these timesteps. The caller has loaded the layer's modulation_weights().
  virtual void make_modulation(size_t /*layer*/) {}

  /// Embeds the input into tokens for the blocks.
  virtual Tokens embed(const TransformerInput& input, const TokenPlan& plan) const = 0;
  /// Runs a block, which changes the tokens.
  virtual void block(size_t layer, Tokens& tokens, Attend& attend) const = 0;
  /// Returns the prediction in the shape of the latents that are denoised.
  virtual at::Tensor head(Tokens& tokens, const TokenPlan& plan) const = 0;
  /// Returns the prediction for the sound, if the model makes sound; otherwise an undefined tensor.
  virtual at::Tensor sound_head(Tokens& /*tokens*/) const { return {}; }
};

}  // namespace sparsereel::models
