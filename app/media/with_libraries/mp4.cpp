// Writes MP4, MOV, Matroska and WebM through libavcodec, in BT.709, with the recipe in the comment tag. Packets of
// sound and of frames alternate in the file.
#include <cmath>
#include <optional>

#include "app/media/encoders.h"
#include "app/media/with_libraries/sound.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

using ffmpeg::CodecContext;

bool makes_yuv420p(const AVCodec& codec) {
  for (const AVPixelFormat* format = ffmpeg::pixel_formats(codec); format != nullptr && *format != AV_PIX_FMT_NONE;
       ++format)
    if (*format == AV_PIX_FMT_YUV420P) return true;
  return false;
}

void set_quality(AVCodecContext& encoder, const Quality& quality) {
  if (quality.bit_rate) encoder.bit_rate = *quality.bit_rate;
  if (quality.crf) av_opt_set_int(encoder.priv_data, "crf", *quality.crf, 0);
  if (!quality.quantizer) return;
  encoder.flags |= AV_CODEC_FLAG_QSCALE;
  encoder.global_quality = static_cast<int>(std::lround(*quality.quantizer * FF_QP2LAMBDA));
}

void make_repeatable(AVCodecContext& encoder) {
  if (encoder.thread_count == 0) encoder.thread_count = kEncoderThreads;  // 0 would follow the number of CPUs
  const EncoderOption option = repeatable_option(encoder.codec->name);
  if (option.name != nullptr) av_opt_set(encoder.priv_data, option.name, option.value, 0);
}

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
  set_quality(*encoder, quality_of(codec.name, stream));
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

const AVCodec* video_encoder(const std::string& name) {
  const AVCodec* codec = avcodec_find_encoder_by_name(name.c_str());
  return codec != nullptr && codec->type == AVMEDIA_TYPE_VIDEO ? codec : nullptr;
}

CodecContext open_chosen(const std::string& name, const Stream& stream, const std::filesystem::path& path) {
  ffmpeg::capture_log();
  int code = 0;
  CodecContext encoder = open_encoder(*video_encoder(name), stream, &code);
  ffmpeg::require(code, path);
  return encoder;
}

class EncodedWriter final : public VideoWriter {
 public:
  EncodedWriter(const std::filesystem::path& path, const Stream& stream)
      : chosen_(choose_encoder(path, stream)),
        encoder_(open_chosen(chosen_.name, stream, path)),
        muxer_(path, stream.container.format),
        converter_(stream.width, stream.height),
        yuv_(ffmpeg::make_frame(AV_PIX_FMT_YUV420P, stream.width, stream.height)) {
    const std::string& recipe = stream.options.recipe;
    const SoundView& sound = stream.options.sound;
    if (!recipe.empty()) av_dict_set(&muxer_.context().metadata, "comment", recipe.c_str(), 0);
    if (sound.any()) {
      const std::string name = choose_sound_encoder(path, sound.format);
      sound_.emplace(sound, name, path);
      written_sound_ = written_sound(sound, name);
    }
    std::vector<std::pair<const char*, const char*>> flags;
    if (stream.container.options != nullptr) flags.emplace_back("movflags", stream.container.options);
    muxer_.begin(*encoder_, flags, sound_ ? &sound_->encoder() : nullptr);
  }

  void add(std::span<const uint8_t> frame) override {
    converter_.convert(frame, *yuv_);
    yuv_->pts = frames_++;
    yuv_->quality = encoder_->global_quality;
    muxer_.write(*encoder_, yuv_.get());
    if (sound_) sound_->write_until(static_cast<double>(frames_) / av_q2d(encoder_->framerate), muxer_);
  }

  WrittenVideo complete() override {
    muxer_.write(*encoder_, nullptr);
    if (sound_) sound_->finish(muxer_);
    return {.encoder = chosen_.name, .note = chosen_.note, .bytes = muxer_.complete(), .sound = written_sound_};
  }
  void place() override { muxer_.place(); }

 private:
  ChosenEncoder chosen_;
  CodecContext encoder_;
  std::optional<ffmpeg::SoundTrack> sound_;
  WrittenSound written_sound_;
  ffmpeg::Muxer muxer_;
  Converter converter_;
  ffmpeg::Frame yuv_;
  int64_t frames_ = 0;
};

}  // namespace

bool has_encoder(const std::string& name) {
  return video_encoder(name) != nullptr;
}

bool may_make_yuv420p(const std::string& name, const Container& container) {
  const AVCodec* codec = video_encoder(name);
  const AVOutputFormat* format = av_guess_format(container.format, nullptr, nullptr);
  return makes_yuv420p(*codec) && avformat_query_codec(format, codec->id, FF_COMPLIANCE_NORMAL) == 1;
}

std::string encoder_failure(const std::string& name, const Stream& stream) {
  ffmpeg::capture_log();
  int code = 0;
  const CodecContext encoder = open_encoder(*video_encoder(name), stream, &code);
  if (encoder) code = ffmpeg::try_header(*encoder, stream.container.format);
  return code < 0 ? ffmpeg::message(code) : "";
}

std::unique_ptr<VideoWriter> open_encoded(const std::filesystem::path& path, const models::VideoShape& shape,
                                          const VideoOptions& options) {
  const Stream stream{container_of(path), static_cast<int>(shape.width), static_cast<int>(shape.height), options};
  return std::make_unique<EncodedWriter>(path, stream);
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

}  // namespace sparsereel::app
