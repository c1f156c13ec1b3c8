// Encodes the sound of a video file. Internal to app/media.
#pragma once

#include <string>

#include "app/media/sound.h"
#include "app/media/with_libraries/ffmpeg.h"

namespace sparsereel::app::ffmpeg {

class SoundTrack {
 public:
  /// `path` is the file that errors name; `encoder` comes from choose_sound_encoder().
  SoundTrack(const SoundView& sound, const std::string& encoder, const std::filesystem::path& path);

  const AVCodecContext& encoder() const { return *encoder_; }
  /// Encodes whole packets up to this time, so that sound and frames alternate in the file.
  void write_until(double seconds, Muxer& muxer);
  /// Encodes the rest.
  void finish(Muxer& muxer);

 private:
  void write(int64_t count, Muxer& muxer);

  SoundView sound_;
  CodecContext encoder_;
  int64_t written_ = 0;  // samples of a channel
};

}  // namespace sparsereel::app::ffmpeg
