// GIF with one palette for the whole clip, found by k-means. Dithering is ordered: unlike error diffusion, it does not
// flicker from frame to frame.
#include <algorithm>
#include <opencv2/core.hpp>
#include <set>

#include "app/media/with_libraries/ffmpeg.h"
#include "app/media/writers.h"

namespace sparsereel::app {
namespace {

constexpr int kPaletteColors =
    255;  // the last of the 256 entries is transparent: the encoder uses it for unchanged pixels
constexpr int kSamples = 1 << 15;
constexpr int kLevels = 64;  // levels per channel in the table of nearest colors
constexpr int kTransparent = 255;

using Color = cv::Vec3f;

/// The frames of a clip, RGB [H, W, 3]. All frames stay in memory until the last one has come, because the palette
/// depends on all of them.
using Frames = std::vector<std::vector<uint8_t>>;

std::vector<Color> sample_pixels(const Frames& frames) {
  const auto pixels_a_frame = static_cast<int64_t>(frames.front().size() / 3);
  const int64_t stride = std::max<int64_t>(1, std::ssize(frames) * pixels_a_frame / kSamples);
  std::vector<Color> samples;
  int64_t start = 0;
  for (const std::vector<uint8_t>& rgb : frames) {
    // The first sampled pixel is one further in each frame, so that the samples do not lie in fixed columns.
    for (int64_t i = start++ % stride; i < pixels_a_frame; i += stride)
      samples.emplace_back(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
  }
  return samples;
}

class Palette {
 public:
  explicit Palette(const Frames& frames) {
    const std::vector<Color> samples = sample_pixels(frames);
    const auto less = [](const Color& a, const Color& b) {
      return std::lexicographical_compare(a.val, a.val + 3, b.val, b.val + 3);
    };
    const std::set<Color, decltype(less)> distinct(samples.begin(), samples.end(), less);
    if (distinct.size() <= kPaletteColors) {
      colors_.assign(distinct.begin(), distinct.end());
    } else {
      dithered_ = true;
      cv::theRNG().state = 1;  // fixed, so that equal frames give an equal palette
      cv::Mat labels, centers;
      const cv::TermCriteria stop(cv::TermCriteria::COUNT + cv::TermCriteria::EPS, 10, 0.5);
      cv::kmeans(cv::Mat(samples).reshape(1), kPaletteColors, labels, stop, 1, cv::KMEANS_PP_CENTERS, centers);
      for (int i = 0; i < centers.rows; ++i) colors_.push_back(centers.at<Color>(i, 0));
    }
    fill_nearest();
  }

  /// Returns a palette entry per pixel.
  std::vector<uint8_t> map(const std::vector<uint8_t>& rgb, int width) const {
    std::vector<uint8_t> result(rgb.size() / 3);
    for (size_t i = 0; i < result.size(); ++i) {
      const int offset = dithered_ ? dither(static_cast<int>(i) % width, static_cast<int>(i) / width) : 0;
      size_t index = 0;
      for (size_t c = 0; c < 3; ++c)
        index = index * kLevels + static_cast<size_t>(std::clamp(rgb[3 * i + c] + offset, 0, 255)) * kLevels / 256;
      result[i] = nearest_[index];
    }
    return result;
  }

  /// Returns the entries as FFmpeg's pal8 wants them: ARGB in native order.
  std::array<uint32_t, 256> argb() const {
    std::array<uint32_t, 256> result{};
    for (size_t i = 0; i < colors_.size(); ++i) {
      const auto channel = [&](int c) { return static_cast<uint32_t>(std::lround(colors_[i][c])); };
      result[i] = 0xFF000000U | channel(0) << 16U | channel(1) << 8U | channel(2);
    }
    for (size_t i = colors_.size(); i < kTransparent; ++i) result[i] = 0xFF000000U;
    result[kTransparent] = 0;
    return result;
  }

 private:
  /// Returns the offset of a pixel from Bayer's 4 x 4 matrix, -4 to 3.5 of 255 levels. This is about the distance
  /// between the colors of a k-means palette.
  static int dither(int x, int y) {
    static constexpr std::array<int, 16> kBayer = {0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5};
    return kBayer[static_cast<size_t>((y % 4) * 4 + x % 4)] / 2 - 4;
  }

  void fill_nearest() {
    nearest_.resize(static_cast<size_t>(kLevels) * kLevels * kLevels);
    const float step = 256.0F / kLevels;
    for (size_t i = 0; i < nearest_.size(); ++i) {
      const size_t red = i / (size_t{kLevels} * kLevels), green = i / kLevels % kLevels, blue = i % kLevels;
      const Color center((static_cast<float>(red) + 0.5F) * step, (static_cast<float>(green) + 0.5F) * step,
                         (static_cast<float>(blue) + 0.5F) * step);
      float best = 1e9F;
      for (size_t c = 0; c < colors_.size(); ++c) {
        const Color difference = colors_[c] - center;
        const float distance = difference.dot(difference);
        if (distance >= best) continue;
        best = distance;
        nearest_[i] = static_cast<uint8_t>(c);
      }
    }
  }

  std::vector<Color> colors_;
  std::vector<uint8_t> nearest_;
  bool dithered_ = false;
};

ffmpeg::CodecContext open_gif_encoder(const std::filesystem::path& path, const models::VideoShape& shape, double fps) {
  const AVCodec* codec = avcodec_find_encoder(AV_CODEC_ID_GIF);
  ffmpeg::CodecContext encoder(avcodec_alloc_context3(codec));
  if (!encoder) throw std::bad_alloc();
  encoder->width = static_cast<int>(shape.width);
  encoder->height = static_cast<int>(shape.height);
  encoder->pix_fmt = AV_PIX_FMT_PAL8;
  encoder->time_base = {1, 100};  // hundredths of a second, GIF's unit
  encoder->framerate = av_d2q(fps, 1000);
  ffmpeg::require(avcodec_open2(encoder.get(), codec, nullptr), path);
  return encoder;
}

class GifWriter final : public VideoWriter {
 public:
  GifWriter(const std::filesystem::path& path, const models::VideoShape& shape, double fps)
      : fps_(fps), encoder_(open_gif_encoder(path, shape, fps)), muxer_(path, "gif") {
    const std::string last_delay = std::to_string(std::max<int64_t>(1, hundredths(1)));
    muxer_.begin(*encoder_, {{"final_delay", last_delay.c_str()}});
  }

  void add(std::span<const uint8_t> frame) override { frames_.emplace_back(frame.begin(), frame.end()); }

  WrittenVideo complete() override {
    const Palette palette(frames_);
    const std::array<uint32_t, 256> argb = palette.argb();
    for (size_t i = 0; i < frames_.size(); ++i) {
      const ffmpeg::Frame frame = ffmpeg::make_frame(AV_PIX_FMT_PAL8, encoder_->width, encoder_->height);
      ffmpeg::fill_plane(*frame, palette.map(frames_[i], encoder_->width), encoder_->width);
      std::memcpy(frame->data[1], argb.data(), sizeof(argb));
      frame->pts = hundredths(static_cast<int64_t>(i));
      muxer_.write(*encoder_, frame.get());
    }
    muxer_.write(*encoder_, nullptr);
    return {.encoder = "gif", .note = {}, .bytes = muxer_.complete()};
  }
  void place() override { muxer_.place(); }

 private:
  int64_t hundredths(int64_t index) const { return std::llround(static_cast<double>(index) * 100 / fps_); }

  double fps_;
  ffmpeg::CodecContext encoder_;
  ffmpeg::Muxer muxer_;
  Frames frames_;
};

}  // namespace

std::unique_ptr<VideoWriter> open_gif(const std::filesystem::path& path, const models::VideoShape& shape,
                                      const VideoOptions& options) {
  ffmpeg::capture_log();
  return std::make_unique<GifWriter>(path, shape, options.fps);
}

}  // namespace sparsereel::app
