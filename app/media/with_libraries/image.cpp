// A picture through FFmpeg's decoders: PNG, JPEG, WebP and what else it knows.
#include "app/media/image.h"

#include "app/media/with_libraries/ffmpeg.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

Error unreadable(const fs::path& path, int code) {
  return bad_file(path, "cannot be read as an image: " + ffmpeg::message(code), "name a PNG, JPEG or WebP file");
}

int require_image(int code, const fs::path& path) {
  if (code < 0) throw unreadable(path, code);
  return code;
}

/// A file that is open for reading.
class Source {
 public:
  explicit Source(const fs::path& path) : path_(path) {
    ffmpeg::capture_log();
    require_image(avformat_open_input(&context_, ("file:" + path.string()).c_str(), nullptr, nullptr), path);
  }
  ~Source() { avformat_close_input(&context_); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Its first picture.
  ffmpeg::Frame decode() {
    require_image(avformat_find_stream_info(context_, nullptr), path_);
    const AVCodec* codec = nullptr;
    const int stream = require_image(av_find_best_stream(context_, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0), path_);
    const ffmpeg::CodecContext decoder(avcodec_alloc_context3(codec));
    const ffmpeg::Packet packet(av_packet_alloc());
    ffmpeg::Frame frame(av_frame_alloc());
    if (!decoder || !packet || !frame) throw std::bad_alloc();
    require_image(avcodec_parameters_to_context(decoder.get(), context_->streams[stream]->codecpar), path_);
    decoder->thread_count = 1;  // a picture comes out for the packet that goes in
    require_image(avcodec_open2(decoder.get(), codec, nullptr), path_);
    int code = AVERROR(EAGAIN);
    while (code == AVERROR(EAGAIN)) {
      const int read = av_read_frame(context_, packet.get());
      if (read >= 0 && packet->stream_index != stream) {
        av_packet_unref(packet.get());
        continue;
      }
      require_image(avcodec_send_packet(decoder.get(), read < 0 ? nullptr : packet.get()), path_);
      av_packet_unref(packet.get());
      code = avcodec_receive_frame(decoder.get(), frame.get());
    }
    require_image(code, path_);
    return frame;
  }

 private:
  fs::path path_;
  AVFormatContext* context_ = nullptr;
};

}  // namespace

Image read_image(const fs::path& path) {
  const ffmpeg::Frame frame = Source(path).decode();
  Image image{.height = frame->height, .width = frame->width, .pixels = {}};
  image.pixels.resize(static_cast<size_t>(image.height * image.width) * 3);
  const ffmpeg::Scaler scaler(sws_getContext(
      frame->width, frame->height, static_cast<AVPixelFormat>(frame->format), frame->width, frame->height,
      AV_PIX_FMT_RGB24, SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr, nullptr, nullptr));
  if (!scaler) throw unreadable(path, AVERROR(EINVAL));
  uint8_t* const target = image.pixels.data();
  const int row_bytes = frame->width * 3;
  require_image(sws_scale(scaler.get(), frame->data, frame->linesize, 0, frame->height, &target, &row_bytes), path);
  return image;
}

}  // namespace sparsereel::app
