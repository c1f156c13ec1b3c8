// Formats durations, and the length and size of a video.
#include "app/jobs/last_line.h"

#include <cmath>

#include "app/counted.h"
#include "app/media/video.h"
#include "hilbert/exact_text.h"

namespace sparsereel::app {
namespace {

bool has_frame_rate(OutputKind kind) {
  return kind != OutputKind::safetensors && kind != OutputKind::png_folder;
}

std::string length_text(const RunOptions& run, int64_t frames) {
  if (frames == 1 || !has_frame_rate(output_kind(run.output))) return counted(frames, "frame");
  return fixed(static_cast<double>(frames) / run.video.fps, 1) + " s of video";
}

}  // namespace

std::string duration_text(double seconds) {
  constexpr double kShort = 9.95;  // longer ones would round to 10.0
  if (seconds < kShort) return fixed(seconds, 1) + " s";
  const int64_t whole = std::llround(seconds), minutes = whole / 60;
  if (minutes == 0) return std::to_string(whole) + " s";
  if (minutes < 60) return std::to_string(minutes) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

std::string video_text(const RunOptions& run, const models::VideoShape& shape) {
  return run.output.string() + ": " + length_text(run, shape.frames) + ", " + std::to_string(shape.width) + "x" +
         std::to_string(shape.height);
}

std::string sound_text(const WrittenSound& sound) {
  if (!sound.any()) return {};
  const int64_t channels = sound.format.channels;
  const std::string kind = channels == 1 ? "mono" : channels == 2 ? "stereo" : std::to_string(channels) + "-channel";
  const std::string rate = exact_text(static_cast<double>(sound.format.sampling_rate) / 1000);
  return ", " + fixed(sound.seconds(), 1) + " s of " + kind + " sound at " + rate + " kHz" +
         (sound.file.empty() ? "" : " in " + sound.file.string());
}

}  // namespace sparsereel::app
