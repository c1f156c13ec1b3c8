// The tokens of MiniMax-H3: each token's position in space and time, and its modulation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/families/minimax_h3/config.h"
#include "models/transformer/token_plan.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

/// The numbers of tokens after the video's tokens. Their order is: patches of keyframes, the sound's left channel, its
/// right channel, the text.
struct TokensBehindVideo {
  int64_t keyframes = 0, sound = 0, text = 0;

  int64_t all() const { return keyframes + sound + text; }
};

TokensBehindVideo tokens_behind_video(const TransformerInput& input, const hilbert::Grid& grid);

/// Returns the text without padding, [1, L, text_dim].
at::Tensor text_of(const TransformerInput& input);

/// Returns the rotary tables of all tokens. On the time axis, the text comes first; video, sound and keyframes begin
/// where the text ends.
TokenTables minimax_h3_tables(const MiniMaxH3Config& config, const TransformerInput& input, const hilbert::Grid& grid);

/// The kinds of tokens, in the order of the checkpoint's weights. Each kind has its own modulation.
enum class TokenKind { video, text, sound };

/// Identifies one modulation: the modulation of a kind of token at a timestep.
struct ModulationRow {
  float time;  // in fp32, as the reference computes timesteps
  TokenKind kind;

  bool operator==(const ModulationRow&) const = default;
};

/// The modulations of a forward pass, in this order: video, text, sound, and keyframes if there are any.
std::vector<ModulationRow> modulation_rows_at(double video_time, double sound_time, bool has_keyframes);

/// Returns int64 [1, N], on the CPU: for each token the index of its modulation in modulation_rows_at(). The first
/// `video_tokens` tokens are the video's. Text tokens that stand for pictures (`pictures`) use the video's modulation.
at::Tensor modulation_of_tokens(int64_t video_tokens, const TokensBehindVideo& behind,
                                const std::vector<TextSpan>& pictures);

}  // namespace sparsereel::models
