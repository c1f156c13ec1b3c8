// Encodes sound through libavcodec, at the sound's own sampling rate. The samples are planar floats, but integers for
// ALAC. The encoder's delay (priming) becomes a negative first timestamp, from which the muxer of MP4 makes the edit
// list that players follow.
#include "app/media/with_libraries/sound.h"

#include <algorithm>
#include <cmath>

#include "app/media/encoders.h"

namespace sparsereel::app {
namespace {

using ffmpeg::CodecContext;

const AVCodec* sound_encoder(const std::string& name) {
  const AVCodec* codec = avcodec_find_encoder_by_name(name.c_str());
  return codec != nullptr && codec->type == AVMEDIA_TYPE_AUDIO ? codec : nullptr;
}

/// FFmpeg 5.1 has replaced the number and the mask of channels by one struct.
#if LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(59, 24, 100)
void set_channels(AVCodecContext& encoder, int64_t channels) {
  av_channel_layout_default(&encoder.ch_layout, static_cast<int>(channels));
}
void copy_channels(AVFrame& frame, const AVCodecContext& encoder) {
  if (av_channel_layout_copy(&frame.ch_layout, &encoder.ch_layout) < 0) throw std::bad_alloc();
}
#else
void set_channels(AVCodecContext& encoder, int64_t channels) {
  encoder.channels = static_cast<int>(channels);
  encoder.channel_layout = static_cast<uint64_t>(av_get_default_channel_layout(encoder.channels));
}
void copy_channels(AVFrame& frame, const AVCodecContext& encoder) {
  frame.channels = encoder.channels;
  frame.channel_layout = encoder.channel_layout;
}
#endif

/// Returns an open encoder, or null with FFmpeg's error code in `code`.
CodecContext open_sound_encoder(const std::string& name, const SoundFormat& sound, int* code) {
  const AVCodec* codec = sound_encoder(name);
  CodecContext encoder(avcodec_alloc_context3(codec));
  if (!encoder) throw std::bad_alloc();
  const SoundQuality quality = sound_quality_of(name, sound);
  encoder->sample_fmt = name == "alac" ? AV_SAMPLE_FMT_S32P : AV_SAMPLE_FMT_FLTP;
  if (name == "alac") encoder->bits_per_raw_sample = 24;
  encoder->sample_rate = static_cast<int>(sound.sampling_rate);
  encoder->time_base = {1, encoder->sample_rate};
  set_channels(*encoder, sound.channels);
  // BITEXACT keeps FFmpeg's version out of the file.
  encoder->flags |= AV_CODEC_FLAG_GLOBAL_HEADER | AV_CODEC_FLAG_BITEXACT;
  if (quality.bit_rate) encoder->bit_rate = *quality.bit_rate;
  if (quality.is_experimental) encoder->strict_std_compliance = FF_COMPLIANCE_EXPERIMENTAL;
  if (quality.quality) {
    encoder->flags |= AV_CODEC_FLAG_QSCALE;
    encoder->global_quality = *quality.quality * FF_QP2LAMBDA;
  }
  *code = avcodec_open2(encoder.get(), codec, nullptr);
  return *code < 0 ? nullptr : std::move(encoder);
}

CodecContext open_chosen_sound(const std::string& name, const SoundFormat& sound, const std::filesystem::path& path) {
  ffmpeg::capture_log();
  int code = 0;
  CodecContext encoder = open_sound_encoder(name, sound, &code);
  ffmpeg::require(code, path);
  return encoder;
}

}  // namespace

bool has_sound_encoder(const std::string& name) {
  return sound_encoder(name) != nullptr;
}

std::string sound_encoder_failure(const std::string& name, const SoundFormat& sound) {
  ffmpeg::capture_log();
  int code = 0;
  open_sound_encoder(name, sound, &code);
  return code < 0 ? ffmpeg::message(code) : "";
}

namespace ffmpeg {

SoundTrack::SoundTrack(const SoundView& sound, const std::string& encoder, const std::filesystem::path& path)
    : sound_(sound), encoder_(open_chosen_sound(encoder, sound.format, path)) {}

void SoundTrack::write_until(double seconds, Muxer& muxer) {
  const auto end = static_cast<int64_t>(seconds * static_cast<double>(sound_.format.sampling_rate));
  while (written_ + encoder_->frame_size <= std::min(end, sound_.count)) write(encoder_->frame_size, muxer);
}

void SoundTrack::finish(Muxer& muxer) {
  while (written_ < sound_.count) write(std::min<int64_t>(encoder_->frame_size, sound_.count - written_), muxer);
  muxer.write(*encoder_, nullptr);
}

/// Encodes the next `count` samples: a frame of the encoder, or fewer at the end of the sound.
void SoundTrack::write(int64_t count, Muxer& muxer) {
  const Frame frame(av_frame_alloc());
  if (!frame) throw std::bad_alloc();
  frame->format = encoder_->sample_fmt;
  frame->sample_rate = encoder_->sample_rate;
  frame->nb_samples = static_cast<int>(count);
  copy_channels(*frame, *encoder_);
  if (av_frame_get_buffer(frame.get(), 0) < 0) throw std::bad_alloc();
  for (int64_t channel = 0; channel < sound_.format.channels; ++channel) {
    uint8_t* const plane = frame->extended_data[channel];
    const bool is_float = encoder_->sample_fmt == AV_SAMPLE_FMT_FLTP;
    for (int64_t i = 0; i < count; ++i) {
      const float value = sound_.written(channel, written_ + i);
      if (is_float)
        reinterpret_cast<float*>(plane)[i] = value;
      else
        reinterpret_cast<int32_t*>(plane)[i] = static_cast<int32_t>(std::lround(value * 0x7FFFFFp0)) * 256;
    }
  }
  frame->pts = written_;
  written_ += count;
  muxer.write(*encoder_, frame.get());
}

}  // namespace ffmpeg
}  // namespace sparsereel::app
