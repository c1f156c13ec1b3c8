// Wraps libav*: owns its objects, turns FFmpeg's errors into sparsereel::Error, encodes and muxes. Internal to
// app/media.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/files/atomic_file.h"

namespace sparsereel::app::ffmpeg {

struct Free {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(SwsContext* context) const { sws_freeContext(context); }
  void operator()(AVFormatContext* context) const { avformat_free_context(context); }
};
using CodecContext = std::unique_ptr<AVCodecContext, Free>;
using Frame = std::unique_ptr<AVFrame, Free>;
using Packet = std::unique_ptr<AVPacket, Free>;
using Scaler = std::unique_ptr<SwsContext, Free>;

/// Silences FFmpeg's log. Keeps the last error that FFmpeg logs, for message().
void capture_log();

/// Returns FFmpeg's text for an error code, with the last line that it logged.
std::string message(int code);

/// Returns the pixel formats that an encoder takes, ending with AV_PIX_FMT_NONE; null if it names none.
const AVPixelFormat* pixel_formats(const AVCodec& encoder);

/// Returns `code`, or throws Error naming the file if it is negative.
int require(int code, const std::filesystem::path& target);

/// Makes a frame of this format and size with its own buffer.
Frame make_frame(AVPixelFormat format, int width, int height);

/// Copies tightly packed rows of `row_bytes` into plane 0.
void fill_plane(AVFrame& frame, std::span<const uint8_t> pixels, int row_bytes);

/// Sends a frame (null at the end) and passes each resulting packet to `sink`.
void encode(AVCodecContext& encoder, const AVFrame* frame, const std::filesystem::path& target,
            const std::function<void(AVPacket&)>& sink);

/// Tests if a container accepts an open encoder's stream, by writing its header to nowhere. Returns FFmpeg's error
/// code, or at least 0 on success.
int try_header(const AVCodecContext& encoder, const char* format);

/// A container with one video stream, and perhaps a stream of sound, written to the temporary file of an AtomicFile.
class Muxer {
 public:
  Muxer(const std::filesystem::path& target, const char* format);
  ~Muxer();
  Muxer(const Muxer&) = delete;
  Muxer& operator=(const Muxer&) = delete;

  AVFormatContext& context() { return *context_; }
  /// Writes the file's header. `encoder` encodes the frames, and `sound` the sound (null if there is none). `options`
  /// are names and values of options of FFmpeg's muxer.
  void begin(const AVCodecContext& encoder, const std::vector<std::pair<const char*, const char*>>& options,
             const AVCodecContext* sound = nullptr);
  /// Encodes a frame (null at the end) into the encoder's stream.
  void write(AVCodecContext& encoder, const AVFrame* frame);
  /// Writes the trailer, closes the file and returns its size in bytes.
  uint64_t complete();
  /// Puts the completed file in place.
  void place();

 private:
  models::AtomicFile file_;
  AVFormatContext* context_ = nullptr;
};

}  // namespace sparsereel::app::ffmpeg
