// Decodes pictures with FFmpeg: PNG, JPEG and WebP, and the last frame of the other files that it reads.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <utility>

extern "C" {
#include <libavutil/avstring.h>
#include <libavutil/display.h>
#include <libavutil/pixdesc.h>
}

#include "app/media/image_readers.h"
#include "app/media/with_libraries/ffmpeg.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

Error unreadable(const fs::path& path, int code) {
  return bad_file(path, "cannot be read as an image: " + ffmpeg::message(code), kImageRemedy);
}

/// Owns a dictionary of FFmpeg options. get() gives FFmpeg access to the pointer, because FFmpeg removes the options
/// that it has used.
class Options {
 public:
  explicit Options(std::initializer_list<std::pair<const char*, const char*>> options) {
    for (const auto& [name, value] : options) av_dict_set(&dictionary_, name, value, 0);
  }
  Options(Options&& other) noexcept : dictionary_(std::exchange(other.dictionary_, nullptr)) {}
  Options& operator=(Options&&) = delete;
  ~Options() { av_dict_free(&dictionary_); }

  AVDictionary** get() { return &dictionary_; }

 private:
  AVDictionary* dictionary_ = nullptr;
};

int require_image(int code, const fs::path& path) {
  if (code < 0) throw unreadable(path, code);
  return code;
}

/// The time limit for reading one file. FFmpeg polls it through callback().
class Deadline {
 public:
  explicit Deadline(std::chrono::seconds limit) : limit_(limit) {}

  AVIOInterruptCB callback() {
    const auto is_over = [](void* own) { return static_cast<Deadline*>(own)->is_over() ? 1 : 0; };
    return {.callback = is_over, .opaque = this};
  }
  void require_time(const fs::path& path) const {
    if (is_over()) throw out_of_time(path, limit_);
  }

 private:
  bool is_over() const { return std::chrono::steady_clock::now() >= start_ + limit_; }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::seconds limit_;
};

/// Sends packets to one decoder. Damaged data is an error.
class Decoder {
 public:
  Decoder(const AVCodec* codec, const fs::path& path, const AVCodecParameters* parameters = nullptr)
      : path_(path), context_(avcodec_alloc_context3(codec)), frame_(av_frame_alloc()) {
    if (!context_ || !frame_) throw std::bad_alloc();
    if (parameters != nullptr) require_image(avcodec_parameters_to_context(context_.get(), parameters), path);
    context_->thread_count = 1;
    context_->max_pixels = kMostImagePixels;
    if (parameters == nullptr)
      context_->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    require_image(avcodec_open2(context_.get(), codec, nullptr), path);
  }

  /// Sends a packet to the decoder; null if there are no more.
  void send(const AVPacket* packet) {
    require_image(avcodec_send_packet(context_.get(), packet), path_);
    receive();
  }
  /// Returns the last picture that was decoded.
  ffmpeg::Frame take_last() {
    if (!last_) throw unreadable(path_, AVERROR_INVALIDDATA);
    return std::move(last_);
  }
  bool has_picture() const { return last_ != nullptr; }

 private:
  void receive() {
    for (;;) {
      const int code = avcodec_receive_frame(context_.get(), frame_.get());
      if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return;
      require_image(code, path_);
      last_ = std::exchange(frame_, ffmpeg::Frame(av_frame_alloc()));
      if (!frame_) throw std::bad_alloc();
    }
  }

  fs::path path_;
  ffmpeg::CodecContext context_;
  ffmpeg::Frame frame_, last_;
};

/// Returns true for RGB, and for gray of full range: their integer samples are the visible values and need no
/// conversion.
bool is_plain(const AVFrame& frame, const AVPixFmtDescriptor& format) {
  if ((format.flags & (AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT)) != 0) return false;
  return (format.flags & AV_PIX_FMT_FLAG_RGB) != 0 ||
         (format.nb_components <= 2 && frame.color_range != AVCOL_RANGE_MPEG);
}

/// Converts a frame whose pixels are indices of colors (0xAARRGGBB) in the second plane.
Image palette_image(const AVFrame& frame) {
  Image image{.height = frame.height, .width = frame.width};
  image.pixels.resize(static_cast<size_t>(image.height * image.width) * 3);
  std::array<uint32_t, 256> colors{};
  std::memcpy(colors.data(), frame.data[1], sizeof colors);
  uint8_t* target = image.pixels.data();
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const uint32_t color = colors[frame.data[0][y * frame.linesize[0] + x]];
      for (const int shift : {16, 8, 0}) *target++ = static_cast<uint8_t>(color >> shift);
    }
  }
  return image;
}

/// Keeps the highest 8 bits of each sample; gray is repeated in all three channels.
Image plain_image(const AVFrame& frame, const AVPixFmtDescriptor& format) {
  Image image{.height = frame.height, .width = frame.width};
  image.pixels.resize(static_cast<size_t>(image.height * image.width) * 3);
  const bool colors = format.nb_components >= 3;
  const std::array<const uint8_t*, 4> planes = {frame.data[0], frame.data[1], frame.data[2], frame.data[3]};
  const std::array<int, 4> strides = {frame.linesize[0], frame.linesize[1], frame.linesize[2], frame.linesize[3]};
  std::vector<uint16_t> line(static_cast<size_t>(frame.width));
  for (int y = 0; y < frame.height; ++y) {
    uint8_t* row = image.pixels.data() + y * image.width * 3;
    for (int channel = 0; channel < 3; ++channel) {
      const int component = colors ? channel : 0, depth = format.comp[component].depth;
      auto planes_of_line = planes;
      av_read_image_line2(line.data(), planes_of_line.data(), strides.data(), &format, 0, y, component, frame.width, 0,
                          sizeof(uint16_t));
      for (int x = 0; x < frame.width; ++x) {
        const int value = line[static_cast<size_t>(x)];
        row[x * 3 + channel] =
            static_cast<uint8_t>(depth >= 8 ? value >> (depth - 8) : value * 255 / ((1 << depth) - 1));
      }
    }
  }
  return image;
}

/// Sets the YUV matrix and the range of values that the picture names, or JPEG's if it names none.
void set_colors(SwsContext& scaler, const AVFrame& frame) {
  const bool full = frame.color_range == AVCOL_RANGE_JPEG || frame.format == AV_PIX_FMT_YUVJ420P ||
                    frame.format == AV_PIX_FMT_YUVJ422P || frame.format == AV_PIX_FMT_YUVJ444P ||
                    frame.format == AV_PIX_FMT_YUVJ440P;
  const int* matrix = sws_getCoefficients(frame.colorspace);  // FFmpeg returns BT.601's for an unknown color space
  sws_setColorspaceDetails(&scaler, matrix, full ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
}

Image converted_image(const AVFrame& frame, const fs::path& path) {
  Image image{.height = frame.height, .width = frame.width};
  image.pixels.resize(static_cast<size_t>(image.height * image.width) * 3);
  const ffmpeg::Scaler scaler(
      sws_getContext(frame.width, frame.height, static_cast<AVPixelFormat>(frame.format), frame.width, frame.height,
                     AV_PIX_FMT_RGB24, SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr, nullptr, nullptr));
  if (!scaler) throw unreadable(path, AVERROR(EINVAL));
  set_colors(*scaler, frame);
  uint8_t* const target = image.pixels.data();
  const int row_bytes = frame.width * 3;
  require_image(sws_scale(scaler.get(), frame.data, frame.linesize, 0, frame.height, &target, &row_bytes), path);
  return image;
}

Image image_of(const AVFrame& frame, const fs::path& path) {
  check_image_size(path, frame.height, frame.width);
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  if (format == nullptr) throw unreadable(path, AVERROR(EINVAL));
  if ((format->flags & AV_PIX_FMT_FLAG_PAL) != 0) return palette_image(frame);
  return is_plain(frame, *format) ? plain_image(frame, *format) : converted_image(frame, path);
}

AVCodecID codec_of(ImageFormat format) {
  if (format == ImageFormat::jpeg) return AV_CODEC_ID_MJPEG;
  return format == ImageFormat::png ? AV_CODEC_ID_PNG : AV_CODEC_ID_WEBP;
}

/// Returns the reader for a file by its content. Ignores the file's name, because FFmpeg would read a name such as
/// "x%03d.bmp" as a pattern.
const AVInputFormat* reader_of(const fs::path& path) {
  constexpr size_t kMostProbed = 1 << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw unreadable(path, AVERROR(errno != 0 ? errno : EIO));
  std::string begin(kMostProbed, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  const auto bytes = static_cast<int>(file.gcount());
  begin.resize(static_cast<size_t>(bytes));
  begin.append(AVPROBE_PADDING_SIZE, '\0');
  const AVProbeData probe = {
      .filename = "", .buf = reinterpret_cast<unsigned char*>(begin.data()), .buf_size = bytes, .mime_type = nullptr};
  const AVInputFormat* reader = av_probe_input_format(&probe, /*is_opened=*/1);
  if (reader == nullptr) throw unreadable(path, AVERROR_INVALIDDATA);
  if (av_match_list(reader->name, kReaders, ',') <= 0)
    throw bad_file(path, std::string("is neither a picture nor a video in one file, but ") + reader->name,
                   kImageRemedy);
  return reader;
}

/// A picture or video that is open for reading. FFmpeg can open no other file through it.
class Source {
 public:
  Source(const fs::path& path, Deadline& deadline) : path_(path), deadline_(deadline) {
    open();
    find_streams();
    index_ = require_image(av_find_best_stream(context_.get(), AVMEDIA_TYPE_VIDEO, -1, -1, &codec_, 0), path_);
    check_image_size(path, stream().codecpar->height, stream().codecpar->width);
  }

  /// Decodes from the last keyframe on, or from the beginning if `of_all`. Returns the last picture, or null if no
  /// picture can be decoded.
  ffmpeg::Frame last_picture(bool of_all) {
    if (!of_all && (context_->duration <= 0 || av_seek_frame(context_.get(), -1, end(), AVSEEK_FLAG_BACKWARD) < 0))
      return {};
    const ffmpeg::Packet packet(av_packet_alloc());
    if (!packet) throw std::bad_alloc();
    Decoder decoder(codec_, path_, stream().codecpar);
    while (av_read_frame(context_.get(), packet.get()) >= 0) {
      deadline_.require_time(path_);
      if (packet->stream_index == index_) decoder.send(packet.get());
      av_packet_unref(packet.get());
    }
    deadline_.require_time(path_);  // without this, running out of time would look like the end of the file
    decoder.send(nullptr);
    return decoder.has_picture() ? decoder.take_last() : ffmpeg::Frame();
  }

  /// Returns the orientation, as in ImageHeader, that FFmpeg's display matrix means.
  int orientation() const {
    const int32_t* matrix = display_matrix();
    if (matrix == nullptr) return 1;
    const bool mirrored = int64_t{matrix[0]} * matrix[4] < int64_t{matrix[1]} * matrix[3];
    const double turn = -av_display_rotation_get(matrix);  // clockwise, in degrees
    // The angle is NaN for a matrix of zeros.
    const auto quarters = mirrored || std::isnan(turn) ? 0 : (static_cast<int>(turn / 90 + 4.5) % 4);
    return std::array{1, 6, 3, 8}[static_cast<size_t>(quarters)];
  }

 private:
  AVStream& stream() const { return *context_->streams[index_]; }
  int64_t end() const {
    return context_->duration + (context_->start_time == AV_NOPTS_VALUE ? 0 : context_->start_time);
  }
  void open() {
    const AVInputFormat* reader = reader_of(path_);
    Options options({{"protocol_whitelist", "file"}, {"format_whitelist", kReaders}});
    AVFormatContext* opened = avformat_alloc_context();
    if (opened == nullptr) throw std::bad_alloc();
    opened->interrupt_callback = deadline_.callback();
    const int code = avformat_open_input(&opened, ("file:" + path_.string()).c_str(), reader, options.get());
    context_.reset(opened);  // null after an error
    deadline_.require_time(path_);
    require_image(code, path_);
  }
  /// Reads what FFmpeg needs to know of the streams. For this it may decode a picture, so max_pixels makes it refuse
  /// large ones.
  void find_streams() {
    const std::string most = std::to_string(kMostImagePixels);
    std::vector<Options> owned;
    std::vector<AVDictionary*> options;
    for (unsigned i = 0; i < context_->nb_streams; ++i)
      options.push_back(*owned.emplace_back(Options({{"max_pixels", most.c_str()}})).get());
    const int code = avformat_find_stream_info(context_.get(), options.empty() ? nullptr : options.data());
    for (size_t i = 0; i < options.size(); ++i) *owned[i].get() = options[i];
    deadline_.require_time(path_);
    require_image(code, path_);
  }
  const int32_t* display_matrix() const {
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    const AVCodecParameters& parameters = *stream().codecpar;
    const AVPacketSideData* data =
        av_packet_side_data_get(parameters.coded_side_data, parameters.nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return data == nullptr ? nullptr : reinterpret_cast<const int32_t*>(data->data);
#else
    return reinterpret_cast<const int32_t*>(av_stream_get_side_data(&stream(), AV_PKT_DATA_DISPLAYMATRIX, nullptr));
#endif
  }

  fs::path path_;
  Deadline& deadline_;
  struct Close {
    void operator()(AVFormatContext* context) const { avformat_close_input(&context); }
  };

  std::unique_ptr<AVFormatContext, Close> context_;
  const AVCodec* codec_ = nullptr;
  int index_ = 0;
};

}  // namespace

Image decode_image(const fs::path& path, ImageFormat format, std::span<const std::byte> file) {
  ffmpeg::capture_log();
  const AVCodec* codec = avcodec_find_decoder(codec_of(format));
  if (codec == nullptr) throw unreadable(path, AVERROR_DECODER_NOT_FOUND);
  const ffmpeg::Packet packet(av_packet_alloc());
  if (!packet || av_new_packet(packet.get(), static_cast<int>(file.size())) < 0) throw std::bad_alloc();
  std::memcpy(packet->data, file.data(), file.size());
  Decoder decoder(codec, path);
  decoder.send(packet.get());
  if (!decoder.has_picture()) decoder.send(nullptr);
  return image_of(*decoder.take_last(), path);
}

Image decode_last_frame(const fs::path& path, std::optional<int> orientation, std::chrono::seconds limit) {
  ffmpeg::capture_log();
  Deadline deadline(limit);
  ffmpeg::Frame frame;
  for (const bool of_all : {false, true}) {
    Source source(path, deadline);
    if (!orientation) orientation = source.orientation();
    frame = source.last_picture(of_all);
    if (frame) break;
  }
  if (!frame) throw unreadable(path, AVERROR_INVALIDDATA);
  return turned(image_of(*frame, path), *orientation);
}

}  // namespace sparsereel::app
