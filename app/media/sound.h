// The sound of a video in memory, and the .wav file that holds it beside a video whose format has no sound. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/media/kind_beside.h"

namespace sparsereel::app {

struct SoundFormat {
  int64_t channels = 0;       // 0 if there is no sound
  int64_t sampling_rate = 0;  // samples of a channel in a second

  bool any() const { return channels > 0; }
};

/// Samples [channels, count], -1..1, contiguous; not owned.
struct SoundView {
  SoundFormat format = {};
  const float* samples = nullptr;
  int64_t count = 0;  // samples of a channel

  bool any() const { return format.any() && count > 0; }
  /// Returns a sample as it is written: clamped to -1..1. NaN and infinity become silence, because encoders refuse
  /// them.
  float written(int64_t channel, int64_t index) const;
  /// Returns how many samples of all channels are NaN or infinite.
  int64_t silenced() const;
};

/// Describes a sound that was written to a file.
struct WrittenSound {
  SoundFormat format = {};
  int64_t count = 0;     // samples of a channel
  int64_t silenced = 0;  // samples that were NaN or infinite
  std::string encoder = {};
  std::filesystem::path file = {};  // the .wav beside the video; empty if the video holds the sound

  bool any() const { return format.any(); }
  double seconds() const;
};
/// Describes a sound that `encoder` has written into the video's own file. If there is no sound, the result has no
/// channels.
WrittenSound written_sound(const SoundView& sound, const std::string& encoder);

/// Returns the sound as a .wav file of 24-bit PCM. Its rounding error is far below the noise of 16-bit sound, so no
/// dither is needed. Every player reads it, and so does Python's module `wave`, which reads no floats. Throws Error
/// naming `target` if the sound is too long for the format (4 GiB).
std::vector<uint8_t> wav_of(const SoundView& sound, const std::filesystem::path& target);

/// The .wav files.
extern const KindBeside kSoundBeside;

}  // namespace sparsereel::app
