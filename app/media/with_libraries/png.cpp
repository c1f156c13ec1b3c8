// Encodes PNGs with FFmpeg.
#include "app/media/png.h"

#include <memory>

#include "app/media/with_libraries/ffmpeg.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

class Encoder {
 public:
  Encoder(int width, int height, std::filesystem::path target);
  std::vector<uint8_t> encode(std::span<const uint8_t> pixels);

 private:
  std::filesystem::path target_;
  ffmpeg::CodecContext encoder_;
  ffmpeg::Frame frame_;
};

Encoder::Encoder(int width, int height, std::filesystem::path target) : target_(std::move(target)) {
  ffmpeg::capture_log();
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_PNG);
  if (codec == nullptr)
    throw run_failure(target_.string() + ": this FFmpeg has no PNG encoder", "choose another output");
  encoder_.reset(avcodec_alloc_context3(codec));
  if (!encoder_) throw std::bad_alloc();
  encoder_->width = width;
  encoder_->height = height;
  encoder_->pix_fmt = AV_PIX_FMT_RGB24;
  encoder_->time_base = {1, 1};
  encoder_->thread_count = 1;  // with more threads, packets would come several frames late
  ffmpeg::require(avcodec_open2(encoder_.get(), codec, nullptr), target_);
  frame_ = ffmpeg::make_frame(AV_PIX_FMT_RGB24, width, height);
}

std::vector<uint8_t> Encoder::encode(std::span<const uint8_t> pixels) {
  ffmpeg::fill_plane(*frame_, pixels, frame_->width * 3);
  ++frame_->pts;
  std::vector<uint8_t> png;
  ffmpeg::encode(*encoder_, frame_.get(), target_,
                 [&](const AVPacket& packet) { png.insert(png.end(), packet.data, packet.data + packet.size); });
  return png;
}

}  // namespace

PngEncoder png_encoder(int width, int height, const std::filesystem::path& target) {
  return [encoder = std::make_shared<Encoder>(width, height, target)](std::span<const uint8_t> pixels) {
    return encoder->encode(pixels);
  };
}

}  // namespace sparsereel::app
