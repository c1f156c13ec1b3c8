// Computes positions in fp64 and rounds them to fp32, as the reference does.
#include "models/families/minimax_h3/token_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace sparsereel::models {
namespace {

constexpr double kSpanOfFrame = 5.0 / 3;  // duration of a frame in latents of sound: 24 frames last 40 latents
/// Frames that each latent frame stands for; the pattern repeats.
constexpr std::array<double, 5> kFramesOfLatent = {1, 4, 4, 4, 4};
constexpr double kSpatialScale = 32;

/// Positions of N tokens, fp64 [N] each: time, row and column.
struct Places {
  at::Tensor t, y, x;
};

double span_of_latent(int64_t index) {
  return kSpanOfFrame * kFramesOfLatent[static_cast<size_t>(index) % kFramesOfLatent.size()];
}

/// Returns the length in time of `count` latent frames. Sums in numpy's order, so that the result rounds as in the
/// reference.
double span_of_latents(int64_t count) {
  std::array<double, 8> lanes{};
  const int64_t whole = count / 8 * 8;
  for (int64_t i = 0; i < whole; ++i) lanes[static_cast<size_t>(i % 8)] += span_of_latent(i);
  double sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (int64_t i = whole; i < count; ++i) sum += span_of_latent(i);
  return sum;
}

/// Returns the positions of `count` patches along one axis of a frame, which has `length` latents. `side` is the edge
/// of a square with the frame's area. All frames of one area have the same distance between patches, and are centered.
at::Tensor axis_places(int64_t count, double length, double side) {
  const double ratio = length / side, left = (1 - ratio) / 2, end = left + ratio;
  return (at::arange(count, at::kDouble) * ((end - left) / static_cast<double>(count)) + left) * kSpatialScale;
}

/// The rows and columns of one frame's patches.
struct FramePlaces {
  at::Tensor y, x;  // fp64 [height], [width]

  FramePlaces(const MiniMaxH3Config& config, const hilbert::Grid& grid) {
    const auto height = static_cast<double>(grid.height * config.patch_size[1]);
    const auto width = static_cast<double>(grid.width * config.patch_size[2]);
    const double side = std::sqrt(height * width);
    y = axis_places(grid.height, height, side);
    x = axis_places(grid.width, width, side);
  }

  /// Returns the positions of all patches of frames at these times. `times` is fp64 [frames].
  Places at(const at::Tensor& times) const {
    const std::vector<at::Tensor> axes = at::meshgrid({times, y, x}, "ij");
    return {axes[0].flatten(), axes[1].flatten(), axes[2].flatten()};
  }
};

at::Tensor video_times(int64_t frames, double start) {
  at::Tensor times = at::empty({frames}, at::kDouble);
  double past = 0;
  for (int64_t i = 0; i < frames; ++i) {
    times[i] = start + past;
    past += span_of_latent(i);
  }
  return times;
}

Places behind_video(const TransformerInput& input, const TokensBehindVideo& behind, const FramePlaces& frame,
                    int64_t frames) {
  const auto start = static_cast<double>(behind.text);
  std::vector<at::Tensor> t, y, x;
  const auto add = [&](const Places& places) {
    t.push_back(places.t);
    y.push_back(places.y);
    x.push_back(places.x);
  };
  for (const Keyframe& keyframe : input.keyframes) {
    const double time = keyframe.last ? start + span_of_latents(frames) - kSpanOfFrame : start;
    add(frame.at(at::full({1}, time, at::kDouble)));
  }
  const int64_t length = behind.sound / MiniMaxH3Config::kSoundChannels;
  const at::Tensor times = start + at::arange(length, at::kDouble), zeros = at::zeros({length}, at::kDouble);
  add({times, zeros, frame.x[0].expand({length})});
  add({times, zeros, frame.x[-1].expand({length})});
  const at::Tensor no_place = at::zeros({behind.text}, at::kDouble);
  add({at::arange(behind.text, at::kDouble), no_place, no_place});
  return {at::cat(t), at::cat(y), at::cat(x)};
}

/// Returns the rotary tables for channels in the order of RotatedHeads, in which rotated pairs are neighbors.
RotaryTable rotary_table(const MiniMaxH3Config& config, const Places& places) {
  const int64_t count = config.rope_freq_dim;
  const at::Tensor exponent = at::arange(0, 2 * count, 2, at::kFloat) / static_cast<double>(2 * count);
  const at::Tensor frequency = at::pow(config.rope_theta, exponent).reciprocal();
  const auto angles = [&](const at::Tensor& positions) { return at::outer(positions.to(at::kFloat), frequency); };
  const at::Tensor all = at::cat({angles(places.t), angles(places.y), angles(places.x)}, 1).repeat_interleave(2, 1);
  const int64_t rest = config.attention_head_dim - all.size(1);  // channels that are not rotated
  return {.cos = at::constant_pad_nd(all.cos(), {0, rest}, 1), .sin = at::constant_pad_nd(all.sin(), {0, rest}, 0)};
}

}  // namespace

at::Tensor text_of(const TransformerInput& input) {
  const Conditioning& given = input.conditioning;
  return given.text_lengths.empty() ? given.text : given.text.narrow(1, 0, given.text_lengths.front());
}

TokensBehindVideo tokens_behind_video(const TransformerInput& input, const hilbert::Grid& grid) {
  return {.keyframes = std::ssize(input.keyframes) * grid.height * grid.width,
          .sound = input.sound.size(1),
          .text = text_of(input).size(1)};
}

TokenTables minimax_h3_tables(const MiniMaxH3Config& config, const TransformerInput& input, const hilbert::Grid& grid) {
  const TokensBehindVideo behind = tokens_behind_video(input, grid);
  const FramePlaces frame(config, grid);
  TokenTables tables;
  tables.rotary = rotary_table(config, frame.at(video_times(grid.frames, static_cast<double>(behind.text))));
  tables.text_rotary = rotary_table(config, behind_video(input, behind, frame, grid.frames));
  return tables;
}

std::vector<ModulationRow> modulation_rows_at(double video_time, double sound_time, bool has_keyframes) {
  const auto video = static_cast<float>(video_time), sound = static_cast<float>(sound_time);
  std::vector<ModulationRow> rows = {{video, TokenKind::video}, {video, TokenKind::text}, {sound, TokenKind::sound}};
  if (has_keyframes)
    rows.push_back(
        {static_cast<float>(std::max(static_cast<double>(video), MiniMaxH3Config::kKeyframeTime)), TokenKind::video});
  return rows;
}

at::Tensor modulation_of_tokens(int64_t video_tokens, const TokensBehindVideo& behind,
                                const std::vector<TextSpan>& pictures) {
  constexpr int64_t kVideo = 0, kText = 1, kSound = 2, kKeyframes = 3;  // in the order of modulation_rows_at()
  const at::Tensor rows = at::full({1, video_tokens + behind.all()}, kVideo, at::kLong);
  int64_t first = video_tokens;
  const auto fill = [&](int64_t count, int64_t row) {
    rows.narrow(1, first, count).fill_(row);
    first += count;
  };
  fill(behind.keyframes, kKeyframes);
  fill(behind.sound, kSound);
  const int64_t text = first;
  fill(behind.text, kText);
  for (const TextSpan& span : pictures) rows.narrow(1, text + span.first, span.count).fill_(kVideo);
  return rows;
}

}  // namespace sparsereel::models
