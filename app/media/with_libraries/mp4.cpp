// MP4, MOV, Matroska and WebM: H.264, VP9 or AV1 through libavcodec, BT.709, recipe in the comment tag.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include "app/media/with_libraries/ffmpeg.h"
#include "app/media/writers.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

using ffmpeg::CodecContext;

/// A kind of file, FFmpeg's name for it, and the encoders for it, best first. Wrappers of devices (nvenc, vaapi, omx)
/// are compiled in on machines that lack the device: they are used only when asked for by name.
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
  for (const AVPixelFormat* format = codec.pix_fmts; format != nullptr && *format != AV_PIX_FMT_NONE; ++format)
    if (*format == AV_PIX_FMT_YUV420P) return true;
  return false;
}

std::string names(const std::vector<const AVCodec*>& codecs) {
  std::string result;
  for (const AVCodec* codec : codecs) result += (result.empty() ? "" : ", ") + std::string(codec->name);
  return result;
}

/// The encoders to try in order: the one asked for, or all of encoders_of().
std::vector<const AVCodec*> candidates(const Container& container, const VideoOptions& options) {
  std::vector<const AVCodec*> known = encoders_of(container);
  if (options.codec.empty()) {
    if (!known.empty()) return known;
    throw bad_input(
        "the FFmpeg found has no encoder for " + std::string(container.extension),
        std::string("install one with ") + container.encoders.front() + ", or write .gif, .y4m or a folder of PNGs");
  }
  if (options.codec == "libsvtav1")  // seen with 1.4: this check, or a full disk, would hang the program
    throw bad_option("codec", "libsvtav1 never comes back from being closed before its first frame",
                     "use libaom-av1, one of " + names(known) + ", or leave --codec out");
  const AVCodec* codec = avcodec_find_encoder_by_name(options.codec.c_str());
  if (codec == nullptr || codec->type != AVMEDIA_TYPE_VIDEO)
    throw bad_option("codec", options.codec + ": the FFmpeg found has no such video encoder",
                     "use one of " + names(known) + ", or leave --codec out");
  const AVOutputFormat* format = av_guess_format(container.format, nullptr, nullptr);
  if (!makes_yuv420p(*codec) || avformat_query_codec(format, codec->id, FF_COMPLIANCE_NORMAL) != 1)
    throw bad_option("codec", options.codec + " cannot make yuv420p video for " + std::string(container.extension),
                     "use one of " + names(known) + ", or leave --codec out");
  return {codec};
}

/// The encoder's nearest equivalent of an x264 crf.
void set_quality(AVCodecContext& encoder, int crf) {
  const std::string name = encoder.codec->name;
  if (name == "libx264" || name == "libx265") {
    av_opt_set_int(encoder.priv_data, "crf", crf, 0);
  } else if (name.starts_with("libvpx") || name == "libaom-av1") {
    constexpr int kWorst = 63, kWorstOfX264 = 51;
    encoder.bit_rate = 0;  // quality alone decides
    av_opt_set_int(encoder.priv_data, "crf", crf * kWorst / kWorstOfX264, 0);
  } else if (encoder.codec_id == AV_CODEC_ID_MPEG4) {
    // MPEG-4's quantiser doubles every 6 steps of H.264's and is about 2 at crf 17.
    const double quantiser = std::clamp(2 * std::exp2((crf - 17) / 6.0), 1.0, 31.0);
    encoder.flags |= AV_CODEC_FLAG_QSCALE;
    encoder.global_quality = static_cast<int>(std::lround(quantiser * FF_QP2LAMBDA));
  } else {
    // Encoders that only know a bit rate: half a bit a pixel at crf 17, doubling every 6 steps.
    const double bits_per_pixel = 0.5 * std::exp2((17 - crf) / 6.0);
    encoder.bit_rate = std::llround(bits_per_pixel * encoder.width * encoder.height * av_q2d(encoder.framerate));
  }
}

/// The same frames make the same file every time and on every machine. Encoders that count the CPUs they may use make
/// other streams with other numbers of threads. x264's AVX-512 code reads memory that it never wrote where the width is
/// no multiple of 128 (seen with core 164: two runs, two files); its AVX2 code does not.
void make_repeatable(AVCodecContext& encoder) {
  constexpr int kThreads = 4;
  const std::string name = encoder.codec->name;
  if (encoder.thread_count == 0) encoder.thread_count = kThreads;  // 0: as many as there are CPUs, and more
  // x265 counts for itself. Its log goes to stderr.
  if (name == "libx265") av_opt_set(encoder.priv_data, "x265-params", "log-level=none:frame-threads=4", 0);
#ifdef __x86_64__
  if (name == "libx264" && __builtin_cpu_supports("avx512bw") != 0)
    av_opt_set(encoder.priv_data, "x264-params", "asm=AVX2", 0);
#endif
}

/// An open encoder, or nullptr with FFmpeg's error code in `code`.
CodecContext open_encoder(const AVCodec& codec, const FramesView& frames, const VideoOptions& options, int* code) {
  CodecContext encoder(avcodec_alloc_context3(&codec));
  if (!encoder) throw std::bad_alloc();
  const FrameRate rate = frame_rate(options.fps);
  encoder->width = static_cast<int>(frames.width);
  encoder->height = static_cast<int>(frames.height);
  encoder->pix_fmt = AV_PIX_FMT_YUV420P;
  encoder->framerate = {rate.numerator, rate.denominator};
  encoder->time_base = {rate.denominator, rate.numerator};
  encoder->color_range = AVCOL_RANGE_MPEG;
  encoder->color_primaries = AVCOL_PRI_BT709;
  encoder->color_trc = AVCOL_TRC_BT709;
  encoder->colorspace = AVCOL_SPC_BT709;
  encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
  set_quality(*encoder, options.crf);
  make_repeatable(*encoder);
  *code = avcodec_open2(encoder.get(), &codec, nullptr);
  return *code < 0 ? nullptr : std::move(encoder);
}

/// RGB 0..255 to yuv420p by BT.709's coefficients.
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

  void convert(const std::vector<uint8_t>& pixels, AVFrame& yuv) {
    ffmpeg::fill_plane(*rgb_, pixels, rgb_->width * 3);
    if (av_frame_make_writable(&yuv) < 0) throw std::bad_alloc();
    sws_scale(scaler_.get(), rgb_->data, rgb_->linesize, 0, rgb_->height, yuv.data, yuv.linesize);
  }

 private:
  ffmpeg::Frame rgb_;
  ffmpeg::Scaler scaler_;
};

struct ChosenEncoder {
  CodecContext context;
  std::string note;
};

/// `name`: for the error.
ChosenEncoder choose_encoder(const std::filesystem::path& path, const std::string& name, const FramesView& frames,
                             const VideoOptions& options) {
  const Container& container = container_of(path);
  const auto codecs = candidates(container, options);
  std::string failures;
  int code = 0;
  for (const AVCodec* codec : codecs) {
    ChosenEncoder chosen{open_encoder(*codec, frames, options, &code), {}};
    if (!chosen.context) {
      failures += std::string(codec->name) + ": " + ffmpeg::message(code) + "; ";
      continue;
    }
    const bool preferred = std::string(codec->name) == container.encoders.front() || !options.codec.empty();
    if (!preferred)
      chosen.note =
          "encoded by " + std::string(codec->name) + ": this FFmpeg offers no working " + container.encoders.front();
    return chosen;
  }
  throw run_failure(name + ": no encoder could be opened: " + failures.substr(0, failures.size() - 2),
                    "name another with --codec, or write .gif, .y4m or a folder of PNGs");
}

}  // namespace

void check_encoder(const std::filesystem::path& path, const VideoOptions& options) {
  candidates(container_of(path), options);
  if (options.codec.empty()) return;
  // Some are compiled in but want a device, another frame rate or full-range colours: that shows only when they open.
  constexpr int64_t kSide = 256;  // hardware has a smallest size
  ffmpeg::capture_log();
  choose_encoder(path, "--codec " + options.codec, {.data = nullptr, .frames = 1, .height = kSide, .width = kSide},
                 options);
}

WrittenVideo write_encoded(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options) {
  const Container& container = container_of(path);
  if (frames.width % 2 != 0 || frames.height % 2 != 0)
    throw bad_file(path,
                   "such a video needs an even width and height, these frames are " + std::to_string(frames.width) +
                       "x" + std::to_string(frames.height),
                   "write .gif, .y4m or a folder of PNGs");
  ffmpeg::capture_log();
  const auto [encoder, note] = choose_encoder(path, path.string(), frames, options);
  ffmpeg::Muxer muxer(path, container.format);
  if (!options.recipe.empty()) av_dict_set(&muxer.context().metadata, "comment", options.recipe.c_str(), 0);
  std::vector<std::pair<const char*, const char*>> flags;
  if (container.options != nullptr) flags.emplace_back("movflags", container.options);
  muxer.begin(*encoder, flags);

  Converter converter(encoder->width, encoder->height);
  const ffmpeg::Frame yuv = ffmpeg::make_frame(AV_PIX_FMT_YUV420P, encoder->width, encoder->height);
  for (int64_t i = 0; i < frames.frames; ++i) {
    converter.convert(rgb8(frames, i), *yuv);
    yuv->pts = i;
    yuv->quality = encoder->global_quality;
    muxer.write(*encoder, yuv.get());
  }
  muxer.write(*encoder, nullptr);
  return {.encoder = encoder->codec->name, .note = note, .bytes = muxer.finish()};
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

std::vector<std::string> mp4_encoder_names() {
  std::vector<std::string> result;
  for (const AVCodec* codec : encoders_of(kContainers.front())) result.emplace_back(codec->name);
  return result;
}

}  // namespace sparsereel::app
