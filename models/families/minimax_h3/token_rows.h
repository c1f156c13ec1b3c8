// The tokens of MiniMax-H3: where each lies in space and time, and which modulation it uses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/families/minimax_h3/config.h"
#include "models/transformer/token_plan.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

/// The numbers of tokens behind those of the video, in their order: the patches of the keyframes, the sound's left
/// channel, its right channel, the text.
struct TokensBehindVideo {
  int64_t keyframes = 0, sound = 0, text = 0;

  int64_t all() const { return keyframes + sound + text; }
};

TokensBehindVideo tokens_behind_video(const TransformerInput& input, const hilbert::Grid& grid);

/// Returns the text without padding, [1, L, text_dim].
at::Tensor text_of(const TransformerInput& input);

/// Returns the rotary tables of all tokens. The text comes first in time; video, sound and keyframes begin where it
/// ends.
TokenTables minimax_h3_tables(const MiniMaxH3Config& config, const TransformerInput& input, const hilbert::Grid& grid);

/// The kinds of tokens, which have separate modulation, in the order of the checkpoint's weights.
enum class TokenKind { video, text, sound };

/// Selects one modulation: that of a kind of tokens at a timestep.
struct ModulationRow {
  float time;  // in fp32, as the reference computes timesteps
  TokenKind kind;

  bool operator==(const ModulationRow&) const = default;
};

/// The modulations of a forward pass, in this order: video, text, sound, and keyframes if there are any.
std::vector<ModulationRow> modulation_rows_at(double video_time, double sound_time, bool has_keyframes);

/// Returns int64 [1, N], on the CPU: for each token the index of its modulation in modulation_rows_at(). There are
/// video_tokens tokens of the video. Text tokens that stand for pictures use the video's modulation.
at::Tensor modulation_of_tokens(int64_t video_tokens, const TokensBehindVideo& behind,
                                const std::vector<TextSpan>& pictures);

}  // namespace sparsereel::models
