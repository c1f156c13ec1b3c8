// Code that the tests of media files share: it makes clips to write, and decodes the written files.
#pragma once

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/media/video.h"
#include "app/media/with_libraries/ffmpeg.h"
#include "app/media/writers.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {

using test::names_in;
using test::TemporaryFolder;

/// Frames of a colored disk that moves over a gradient. The disk's edge is so soft that an encoder which halves the
/// resolution of chroma can show it.
struct Clip {
  std::vector<float> values;
  FramesView view;
};

inline Clip make_clip(int64_t frames, int64_t height, int64_t width) {
  Clip clip;
  clip.values.resize(static_cast<size_t>(frames * height * width * 3));
  size_t i = 0;
  for (int64_t f = 0; f < frames; ++f) {
    const double center =
        static_cast<double>(width) * (0.25 + 0.5 * static_cast<double>(f) / static_cast<double>(frames));
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const double dx = static_cast<double>(x) - center,
                     dy = static_cast<double>(y) - static_cast<double>(height) / 2;
        const double inside = 1 / (1 + std::exp(std::hypot(dx, dy) - static_cast<double>(height) / 4));
        const auto blend = [&](double disc, double ground) {
          return static_cast<float>(inside * disc + (1 - inside) * ground);
        };
        clip.values[i++] = blend(0.9, 0.1);
        clip.values[i++] = blend(0.2, static_cast<double>(y) / static_cast<double>(height));
        clip.values[i++] = blend(0.1, 0.3 + 0.5 * static_cast<double>(x) / static_cast<double>(width));
      }
    }
  }
  clip.view = {.data = clip.values.data(), .frames = frames, .height = height, .width = width};
  return clip;
}

struct Decoded {
  std::vector<std::vector<uint8_t>> frames = {};  // RGB [H, W, 3]
  int width = 0, height = 0;
  AVPixelFormat pixel_format = AV_PIX_FMT_NONE;
  AVCodecID codec = AV_CODEC_ID_NONE;
  AVColorRange range = AVCOL_RANGE_UNSPECIFIED;
  AVColorPrimaries primaries = AVCOL_PRI_UNSPECIFIED;
  AVColorTransferCharacteristic transfer = AVCOL_TRC_UNSPECIFIED;
  AVColorSpace space = AVCOL_SPC_UNSPECIFIED;
  double fps = 0;
  double seconds = 0;
};

/// Returns the frame as RGB [H, W, 3]. Converts colors as a player does: by BT.709 if the stream says so.
inline std::vector<uint8_t> to_rgb(const AVFrame& frame) {
  ffmpeg::Scaler scaler(sws_getContext(frame.width, frame.height, static_cast<AVPixelFormat>(frame.format), frame.width,
                                       frame.height, AV_PIX_FMT_RGB24,
                                       SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr, nullptr, nullptr));
  const int* table = sws_getCoefficients(frame.colorspace == AVCOL_SPC_BT709 ? SWS_CS_ITU709 : SWS_CS_DEFAULT);
  sws_setColorspaceDetails(scaler.get(), table, frame.color_range == AVCOL_RANGE_JPEG ? 1 : 0, table, 1, 0, 1 << 16,
                           1 << 16);
  std::vector<uint8_t> rgb(static_cast<size_t>(frame.width) * frame.height * 3);
  uint8_t* planes[] = {rgb.data()};
  const int strides[] = {frame.width * 3};
  sws_scale(scaler.get(), frame.data, frame.linesize, 0, frame.height, planes, strides);
  return rgb;
}

inline Decoded decode_video(const std::filesystem::path& path) {
  AVFormatContext* input = nullptr;
  if (avformat_open_input(&input, path.c_str(), nullptr, nullptr) < 0 || avformat_find_stream_info(input, nullptr) < 0)
    throw std::runtime_error("cannot open " + path.string());
  const AVStream* stream = input->streams[0];
  const AVCodecParameters& parameters = *stream->codecpar;
  Decoded result{.width = parameters.width,
                 .height = parameters.height,
                 .pixel_format = static_cast<AVPixelFormat>(parameters.format),
                 .codec = parameters.codec_id,
                 .range = parameters.color_range,
                 .primaries = parameters.color_primaries,
                 .transfer = parameters.color_trc,
                 .space = parameters.color_space,
                 .fps = av_q2d(stream->avg_frame_rate),
                 .seconds = static_cast<double>(input->duration) / AV_TIME_BASE};
  const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
  const ffmpeg::CodecContext decoder(avcodec_alloc_context3(codec));
  avcodec_parameters_to_context(decoder.get(), &parameters);
  if (avcodec_open2(decoder.get(), codec, nullptr) < 0) throw std::runtime_error("cannot decode " + path.string());
  const ffmpeg::Frame frame(av_frame_alloc());
  const ffmpeg::Packet packet(av_packet_alloc());
  const auto drain = [&] {
    while (avcodec_receive_frame(decoder.get(), frame.get()) == 0) result.frames.push_back(to_rgb(*frame));
  };
  while (av_read_frame(input, packet.get()) == 0) {
    avcodec_send_packet(decoder.get(), packet.get());
    av_packet_unref(packet.get());
    drain();
  }
  avcodec_send_packet(decoder.get(), nullptr);
  drain();
  avformat_close_input(&input);
  return result;
}

/// Returns the peak signal-to-noise ratio in dB over all frames, for a peak of 255.
inline double psnr(const Decoded& decoded, const FramesView& expected) {
  double sum = 0;
  size_t count = 0;
  for (size_t f = 0; f < decoded.frames.size(); ++f) {
    const float* frame = expected.frame(static_cast<int64_t>(f));
    for (size_t i = 0; i < decoded.frames[f].size(); ++i, ++count)
      sum += std::pow(decoded.frames[f][i] - 255.0 * frame[i], 2);
  }
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(count) / std::max(sum, 1e-9));
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace sparsereel::app
