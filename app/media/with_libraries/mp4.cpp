// Writes MP4, MOV, Matroska and WebM: H.264, VP9 or AV1 through libavcodec, in BT.709, with the recipe in the comment
// tag.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include "app/media/with_libraries/ffmpeg.h"
#include "app/media/writers.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

using ffmpeg::CodecContext;

/// A file extension, FFmpeg's name of the format, and its encoders, best first. Wrappers of devices (nvenc, vaapi, omx)
/// are compiled in on machines that lack the device, so they are used only if the user names them.
struct Container {
  std::string_view extension;
  const char* format;
  std::array<const char*, 3> encoders;
  const char* options;  // movflags
};
constexpr std::array<Container, 4> kContainers = {{{".mp4", "mp4", {"libx264", "libopenh264", "mpeg4"}, "+faststart"},
                                                   {".mov", "mov", {"libx264", "libopenh264", "mpeg4"}, "+faststart"},
                                                   {".mkv", "matroska", {"libx264", "libopenh264", "mpeg4"}, nullptr},
                                                   {".webm", "webm", {"libvpx-vp9", "libaom-av1", "libvpx"}, nullptr}}};

/// Closing this encoder before its first frame never returns (seen with version 1.4), so a check or a full disk would
/// hang the program.
constexpr const char* kHangs = "libsvtav1";

const Container& container_of(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return *std::find_if(kContainers.begin(), kContainers.end() - 1,
                       [&](const Container& container) { return container.extension == extension; });
}

std::vector<const AVCodec*> encoders_of(const Container& container) {
  std::vector<const AVCodec*> result;
  for (const char* name : container.encoders)
    if (const AVCodec* codec = avcodec_find_encoder_by_name(name)) result.push_back(codec);
  return result;
}

bool makes_yuv420p(const AVCodec& codec) {
  for (const AVPixelFormat* format = ffmpeg::pixel_formats(codec); format != nullptr && *format != AV_PIX_FMT_NONE;
       ++format)
    if (*format == AV_PIX_FMT_YUV420P) return true;
  return false;
}

/// Sets the encoder's nearest equivalent of an x264 crf.
void set_quality(AVCodecContext& encoder, int crf) {
  const std::string name = encoder.codec->name;
  if (name == "libx264" || name == "libx265") {
    av_opt_set_int(encoder.priv_data, "crf", crf, 0);
  } else if (name.starts_with("libvpx") || name == "libaom-av1") {
    constexpr int kWorst = 63, kWorstOfX264 = 51;
    encoder.bit_rate = 0;  // only the quality setting decides
    av_opt_set_int(encoder.priv_data, "crf", crf * kWorst / kWorstOfX264, 0);
  } else if (encoder.codec_id == AV_CODEC_ID_MPEG4) {
    // MPEG-4's quantizer doubles every 6 steps of H.264's and is about 2 at crf 17.
    const double quantizer = std::clamp(2 * std::exp2((crf - 17) / 6.0), 1.0, 31.0);
    encoder.flags |= AV_CODEC_FLAG_QSCALE;
    encoder.global_quality = static_cast<int>(std::lround(quantizer * FF_QP2LAMBDA));
  } else {
    // These encoders know only a bit rate: half a bit per pixel at crf 17, doubling every 6 steps.
    const double bits_per_pixel = 0.5 * std::exp2((17 - crf) / 6.0);
    encoder.bit_rate = std::llround(bits_per_pixel * encoder.width * encoder.height * av_q2d(encoder.framerate));
  }
}

/// Makes the same frames give the same file in every run and on every machine. Encoders that count the CPUs make
/// different streams with different numbers of threads. x264's AVX-512 code reads memory that it never wrote if the
/// width is no multiple of 128 (seen with core 164: two runs, two files). Its AVX2 code does not.
void make_repeatable(AVCodecContext& encoder) {
  constexpr int kThreads = 4;
  const std::string name = encoder.codec->name;
  if (encoder.thread_count == 0) encoder.thread_count = kThreads;  // 0 would follow the number of CPUs
  // x265 counts CPUs by itself, and logs to stderr.
  if (name == "libx265") av_opt_set(encoder.priv_data, "x265-params", "log-level=none:frame-threads=4", 0);
#ifdef __x86_64__
  if (name == "libx264" && __builtin_cpu_supports("avx512bw") != 0)
    av_opt_set(encoder.priv_data, "x264-params", "asm=AVX2", 0);
#endif
}

struct Stream {
  const Container& container;
  int width, height;
  const VideoOptions& options;
};

/// Returns an open encoder, or null with FFmpeg's error code in `code`.
CodecContext open_encoder(const AVCodec& codec, const Stream& stream, int* code) {
  CodecContext encoder(avcodec_alloc_context3(&codec));
  if (!encoder) throw std::bad_alloc();
  const FrameRate rate = frame_rate(stream.options.fps);
  encoder->width = stream.width;
  encoder->height = stream.height;
  encoder->pix_fmt = AV_PIX_FMT_YUV420P;
  encoder->framerate = {rate.numerator, rate.denominator};
  encoder->time_base = {rate.denominator, rate.numerator};
  encoder->color_range = AVCOL_RANGE_MPEG;
  encoder->color_primaries = AVCOL_PRI_BT709;
  encoder->color_trc = AVCOL_TRC_BT709;
  encoder->colorspace = AVCOL_SPC_BT709;
  encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  set_quality(*encoder, stream.options.crf);
  make_repeatable(*encoder);
  *code = avcodec_open2(encoder.get(), &codec, nullptr);
  return *code < 0 ? nullptr : std::move(encoder);
}

/// Converts RGB 0..255 to yuv420p with BT.709's coefficients.
class Converter {
 public:
  Converter(int width, int height)
      : rgb_(ffmpeg::make_frame(AV_PIX_FMT_RGB24, width, height)),
        scaler_(sws_getContext(width, height, AV_PIX_FMT_RGB24, width, height, AV_PIX_FMT_YUV420P,
                               SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP, nullptr, nullptr, nullptr)) {
    if (!scaler_) throw std::bad_alloc();
    const int* bt709 = sws_getCoefficients(SWS_CS_ITU709);
    const int full = 1, limited = 0, neutral = 1 << 16;
    sws_setColorspaceDetails(scaler_.get(), bt709, full, bt709, limited, 0, neutral, neutral);
  }

  void convert(std::span<const uint8_t> pixels, AVFrame& yuv) {
    ffmpeg::fill_plane(*rgb_, pixels, rgb_->width * 3);
    if (av_frame_make_writable(&yuv) < 0) throw std::bad_alloc();
    sws_scale(scaler_.get(), rgb_->data, rgb_->linesize, 0, rgb_->height, yuv.data, yuv.linesize);
  }

 private:
  ffmpeg::Frame rgb_;
  ffmpeg::Scaler scaler_;
};

/// Returns an encoder that opens and whose stream the container takes, or null with the reason in `why`.
CodecContext working_encoder(const AVCodec& codec, const Stream& stream, std::string& why) {
  ffmpeg::capture_log();
  int code = 0;
  CodecContext encoder = open_encoder(codec, stream, &code);
  if (encoder) code = ffmpeg::try_header(*encoder, stream.container.format);
  if (code < 0) why = ffmpeg::message(code);
  return code < 0 ? nullptr : std::move(encoder);
}

/// Returns the remedy for an unusable --codec: it names encoders that work.
std::string remedy_beside_codec(const Stream& stream) {
  std::vector<const AVCodec*> others = encoders_of(stream.container);
  const AVCodec* same_format = stream.options.codec == kHangs ? avcodec_find_encoder_by_name("libaom-av1") : nullptr;
  if (same_format != nullptr && std::find(others.begin(), others.end(), same_format) == others.end())
    others.insert(others.begin(), same_format);
  std::string names, ignored;
  for (const AVCodec* codec : others)
    if (codec->name != stream.options.codec && working_encoder(*codec, stream, ignored))
      names += (names.empty() ? "" : " or ") + std::string(codec->name);
  return names.empty() ? "write .gif, .y4m or a folder of PNGs" : "use " + names + ", or leave --codec out";
}

Error bad_codec(const Stream& stream, const std::string& cause) {
  return bad_option("codec", stream.options.codec + cause, remedy_beside_codec(stream));
}

/// Returns the encoder that --codec names. Throws Error if it is known to fail before it opens.
const AVCodec& codec_asked_for(const Stream& stream) {
  const std::string& name = stream.options.codec;
  if (name == kHangs) throw bad_codec(stream, " hangs when it is closed before its first frame");
  const AVCodec* codec = avcodec_find_encoder_by_name(name.c_str());
  if (codec == nullptr || codec->type != AVMEDIA_TYPE_VIDEO)
    throw bad_codec(stream, ": this FFmpeg has no such video encoder");
  const AVOutputFormat* format = av_guess_format(stream.container.format, nullptr, nullptr);
  if (!makes_yuv420p(*codec) || avformat_query_codec(format, codec->id, FF_COMPLIANCE_NORMAL) != 1)
    throw bad_codec(stream, " cannot make yuv420p video for " + std::string(stream.container.extension));
  return *codec;
}

/// Returns the encoders to try in order if --codec is not given.
std::vector<const AVCodec*> usual_codecs(const Container& container) {
  std::vector<const AVCodec*> known = encoders_of(container);
  if (!known.empty()) return known;
  throw bad_input(
      "this FFmpeg has no encoder for " + std::string(container.extension),
      std::string("install one with ") + container.encoders.front() + ", or write .gif, .y4m or a folder of PNGs");
}

struct ChosenEncoder {
  CodecContext context;
  std::string note;
};

std::string size_text(const Stream& stream) {
  return std::to_string(stream.width) + "x" + std::to_string(stream.height);
}

ChosenEncoder choose_encoder(const std::filesystem::path& path, const Stream& stream) {
  if (stream.width % 2 != 0 || stream.height % 2 != 0)
    throw bad_file(path, "such a video needs an even width and height, but these frames are " + size_text(stream),
                   "write .gif, .y4m or a folder of PNGs");
  std::string why, failures;
  if (!stream.options.codec.empty()) {
    CodecContext encoder = working_encoder(codec_asked_for(stream), stream, why);
    if (encoder) return {std::move(encoder), {}};
    throw bad_codec(
        stream, " cannot encode " + size_text(stream) + " for " + std::string(stream.container.extension) + ": " + why);
  }
  for (const AVCodec* codec : usual_codecs(stream.container)) {
    const std::string preferred = stream.container.encoders.front();
    if (CodecContext encoder = working_encoder(*codec, stream, why))
      return {std::move(encoder), codec->name == preferred ? ""
                                                           : "encoded with " + std::string(codec->name) +
                                                                 ": this FFmpeg offers no working " + preferred};
    failures += (failures.empty() ? "" : "; ") + std::string(codec->name) + ": " + why;
  }
  throw bad_file(path, "no encoder takes " + size_text(stream) + ": " + failures,
                 "write .gif, .y4m or a folder of PNGs");
}

class EncodedWriter final : public VideoWriter {
 public:
  EncodedWriter(const std::filesystem::path& path, const Stream& stream, const std::string& recipe)
      : encoder_(choose_encoder(path, stream)),
        muxer_(path, stream.container.format),
        converter_(stream.width, stream.height),
        yuv_(ffmpeg::make_frame(AV_PIX_FMT_YUV420P, stream.width, stream.height)) {
    if (!recipe.empty()) av_dict_set(&muxer_.context().metadata, "comment", recipe.c_str(), 0);
    std::vector<std::pair<const char*, const char*>> flags;
    if (stream.container.options != nullptr) flags.emplace_back("movflags", stream.container.options);
    muxer_.begin(*encoder_.context, flags);
  }

  void add(std::span<const uint8_t> frame) override {
    AVCodecContext& encoder = *encoder_.context;
    converter_.convert(frame, *yuv_);
    yuv_->pts = frames_++;
    yuv_->quality = encoder.global_quality;
    muxer_.write(encoder, yuv_.get());
  }

  WrittenVideo finish() override {
    muxer_.write(*encoder_.context, nullptr);
    return {.encoder = encoder_.context->codec->name, .note = encoder_.note, .bytes = muxer_.finish()};
  }

 private:
  ChosenEncoder encoder_;
  ffmpeg::Muxer muxer_;
  Converter converter_;
  ffmpeg::Frame yuv_;
  int64_t frames_ = 0;
};

}  // namespace

void check_encoder(const std::filesystem::path& path, const VideoOptions& options) {
  constexpr int kSide = 256;  // size for trying encoders: hardware has a least size
  const Stream stream{container_of(path), kSide, kSide, options};
  if (options.codec.empty())
    usual_codecs(stream.container);
  else
    codec_asked_for(stream);
}

void check_frame_size(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options) {
  const Container& container = container_of(path);
  // Cache the result, because rows of a set repeat the question and opening an encoder takes milliseconds.
  static std::set<std::tuple<std::string_view, int64_t, int64_t, double, int, std::string>> known;
  const auto key = std::tuple(container.extension, width, height, options.fps, options.crf, options.codec);
  if (known.contains(key)) return;
  choose_encoder(path, {container, static_cast<int>(width), static_cast<int>(height), options});
  known.insert(key);
}

std::unique_ptr<VideoWriter> open_encoded(const std::filesystem::path& path, const models::VideoShape& shape,
                                          const VideoOptions& options) {
  const Stream stream{container_of(path), static_cast<int>(shape.width), static_cast<int>(shape.height), options};
  return std::make_unique<EncodedWriter>(path, stream, options.recipe);
}

std::string read_comment(const std::filesystem::path& path) {
  ffmpeg::capture_log();
  AVFormatContext* context = nullptr;
  const int code = avformat_open_input(&context, ("file:" + path.string()).c_str(), nullptr, nullptr);
  if (code < 0)
    throw bad_file(path, "cannot be read: " + ffmpeg::message(code),
                   "name a video of this program, its latents, a recipe or a report");
  const AVDictionaryEntry* entry = av_dict_get(context->metadata, "comment", nullptr, 0);
  std::string comment = entry == nullptr ? "" : entry->value;
  avformat_close_input(&context);
  return comment;
}

std::vector<FormatEncoders> format_encoders() {
  std::vector<FormatEncoders> result;
  for (const Container& container : kContainers) {
    result.push_back({.ending = std::string(container.extension), .best = container.encoders.front()});
    for (const AVCodec* codec : encoders_of(container)) result.back().found.emplace_back(codec->name);
  }
  return result;
}

}  // namespace sparsereel::app
