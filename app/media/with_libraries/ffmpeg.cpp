// Wraps libav*: logging, errors, encoding and muxing.
#include "app/media/with_libraries/ffmpeg.h"

#include <array>
#include <cstdarg>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::app::ffmpeg {
namespace {

std::mutex log_mutex;
std::string last_log;  // guarded by log_mutex, because encoders log from their own threads

/// Joins lines: "a\n  b\n" becomes "a; b".
std::string joined_lines(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; lines >> std::ws && std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    result += (result.empty() ? "" : "; ") + line;
  }
  return result;
}

void keep_errors(void*, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_ERROR) return;
  std::array<char, 512> line{};
  std::vsnprintf(line.data(), line.size(), format, arguments);
  const std::lock_guard lock(log_mutex);
  last_log = joined_lines(line.data());
}

std::string reason(int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
  av_strerror(code, text.data(), text.size());
  return text.data();
}

/// Adds a stream for what `encoder` produces. Sets `code` to FFmpeg's error code, which is negative for an error.
AVStream* add_stream(AVFormatContext& context, const AVCodecContext& encoder, int* code) {
  AVStream* stream = avformat_new_stream(&context, nullptr);
  if (stream == nullptr) throw std::bad_alloc();
  stream->time_base = encoder.time_base;
  stream->avg_frame_rate = encoder.framerate;
  *code = avcodec_parameters_from_context(stream->codecpar, &encoder);
  return stream;
}

/// Chooses the tag hvc1 for H.265. QuickTime, Safari and iOS play H.265 in MP4 and MOV only under this tag, but FFmpeg
/// chooses hev1.
void use_apple_tag(AVFormatContext& context) {
  const std::string_view format = context.oformat->name;
  AVCodecParameters& stream = *context.streams[0]->codecpar;
  if (stream.codec_id == AV_CODEC_ID_HEVC && (format == "mp4" || format == "mov"))
    stream.codec_tag = MKTAG('h', 'v', 'c', '1');
}

}  // namespace

void capture_log() {
  av_log_set_callback(keep_errors);
  const std::lock_guard lock(log_mutex);
  last_log.clear();
}

std::string message(int code) {
  const std::lock_guard lock(log_mutex);
  return reason(code) + (last_log.empty() ? "" : " (" + last_log + ")");
}

const AVPixelFormat* pixel_formats(const AVCodec& encoder) {
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(61, 13, 100)  // FFmpeg 7.1, which deprecates AVCodec::pix_fmts
  const void* formats = nullptr;
  const int code =
      avcodec_get_supported_config(nullptr, &encoder, AV_CODEC_CONFIG_PIX_FORMAT, /*flags=*/0, &formats, nullptr);
  return code < 0 ? nullptr : static_cast<const AVPixelFormat*>(formats);
#else
  return encoder.pix_fmts;
#endif
}

int require(int code, const std::filesystem::path& target) {
  if (code >= 0) return code;
  const std::string cause = target.string() + " could not be written: " + message(code);
  const int error = AVUNERROR(code);
  const bool no_room = error == ENOSPC || error == EDQUOT || error == EFBIG;
  models::throw_write_error(error, run_failure(cause, no_room ? models::write_failure(target, error).remedy()
                                                              : "try another --codec or another output format"));
}

Frame make_frame(AVPixelFormat format, int width, int height) {
  Frame frame(av_frame_alloc());
  if (!frame) throw std::bad_alloc();
  frame->format = format;
  frame->width = width;
  frame->height = height;
  if (av_frame_get_buffer(frame.get(), 0) < 0) throw std::bad_alloc();
  return frame;
}

void fill_plane(AVFrame& frame, std::span<const uint8_t> pixels, int row_bytes) {
  if (av_frame_make_writable(&frame) < 0) throw std::bad_alloc();
  for (int y = 0; y < frame.height; ++y)
    std::memcpy(frame.data[0] + static_cast<ptrdiff_t>(y) * frame.linesize[0],
                pixels.data() + static_cast<size_t>(y) * row_bytes, row_bytes);
}

void encode(AVCodecContext& encoder, const AVFrame* frame, const std::filesystem::path& target,
            const std::function<void(AVPacket&)>& sink) {
  require(avcodec_send_frame(&encoder, frame), target);
  const Packet packet(av_packet_alloc());
  if (!packet) throw std::bad_alloc();
  while (true) {
    const int code = avcodec_receive_packet(&encoder, packet.get());
    if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
    require(code, target);
    sink(*packet);
    av_packet_unref(packet.get());
  }
}

int try_header(const AVCodecContext& encoder, const char* format) {
  AVFormatContext* opened = nullptr;
  if (const int code = avformat_alloc_output_context2(&opened, nullptr, format, nullptr); code < 0) return code;
  const std::unique_ptr<AVFormatContext, Free> context(opened);
  int code = 0;
  add_stream(*context, encoder, &code);
  use_apple_tag(*context);
  if (code >= 0) code = avio_open_dyn_buf(&context->pb);
  if (code < 0) return code;
  code = avformat_write_header(context.get(), nullptr);
  uint8_t* header = nullptr;
  avio_close_dyn_buf(std::exchange(context->pb, nullptr), &header);
  av_free(header);
  return code;
}

Muxer::Muxer(const std::filesystem::path& target, const char* format) : file_(target) {
  // The prefix "file:" keeps FFmpeg from taking a name with a colon for a protocol.
  const std::string url = "file:" + file_.temporary().string();
  require(avformat_alloc_output_context2(&context_, nullptr, format, url.c_str()), target);
  context_->flags |= AVFMT_FLAG_BITEXACT;  // equal runs give equal bytes
}

Muxer::~Muxer() {
  if (context_ == nullptr) return;
  avio_closep(&context_->pb);
  avformat_free_context(context_);
}

void Muxer::begin(const AVCodecContext& encoder, const std::vector<std::pair<const char*, const char*>>& options,
                  const AVCodecContext* sound) {
  int code = 0;
  add_stream(*context_, encoder, &code);
  require(code, file_.target());
  if (sound != nullptr) add_stream(*context_, *sound, &code);
  require(code, file_.target());
  use_apple_tag(*context_);
  require(avio_open(&context_->pb, context_->url, AVIO_FLAG_WRITE), file_.target());
  AVDictionary* dictionary = nullptr;
  for (const auto& [name, value] : options) av_dict_set(&dictionary, name, value, 0);
  code = avformat_write_header(context_, &dictionary);
  av_dict_free(&dictionary);
  require(code, file_.target());
}

void Muxer::write(AVCodecContext& encoder, const AVFrame* frame) {
  const int index = encoder.codec_type == AVMEDIA_TYPE_AUDIO ? 1 : 0;
  encode(encoder, frame, file_.target(), [&](AVPacket& packet) {
    if (packet.duration == 0 && index == 0) packet.duration = 1;
    av_packet_rescale_ts(&packet, encoder.time_base, context_->streams[index]->time_base);
    packet.stream_index = index;
    require(av_interleaved_write_frame(context_, &packet), file_.target());
  });
}

uint64_t Muxer::complete() {
  require(av_write_trailer(context_), file_.target());
  require(context_->pb->error, file_.target());
  require(avio_closep(&context_->pb), file_.target());
  const uint64_t bytes = std::filesystem::file_size(file_.temporary());
  file_.complete();
  return bytes;
}

void Muxer::place() {
  file_.commit();
}

}  // namespace sparsereel::app::ffmpeg
