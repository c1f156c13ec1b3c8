// Writes YUV4MPEG2: uncompressed planar video that every encoder reads from a pipe or a file. Needs no library.
#include "app/media/writers.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

/// Computes a byte of a plane: the weighted sum of red, green and blue, plus an offset.
struct PlaneOf {
  float red, green, blue, offset;

  uint8_t operator()(const uint8_t* rgb) const {
    constexpr float kHalf = 0.5F;  // rounds, because no value is negative
    return static_cast<uint8_t>(static_cast<int>(red * rgb[0] + green * rgb[1] + blue * rgb[2] + offset + kHalf));
  }
};

/// ITU-R BT.601, limited range: 16..235 and 16..240. The format has no tag for the matrix, but its manual, yuv4mpeg(5),
/// means this one. FFmpeg uses it at every size.
constexpr double kRed = 0.299, kGreen = 0.587, kBlue = 0.114;

constexpr PlaneOf plane_of(double red, double green, double blue, double scale, double offset) {
  return {.red = static_cast<float>(red * scale / 255),
          .green = static_cast<float>(green * scale / 255),
          .blue = static_cast<float>(blue * scale / 255),
          .offset = static_cast<float>(offset)};
}

constexpr PlaneOf kY = plane_of(kRed, kGreen, kBlue, 219, 16);
constexpr PlaneOf kCb = plane_of(-kRed, -kGreen, 1 - kBlue, 224 / 1.772, 128);
constexpr PlaneOf kCr = plane_of(1 - kRed, -kGreen, -kBlue, 224 / 1.402, 128);

/// Returns the planes Y, Cb, Cr of one frame.
std::vector<uint8_t> yuv444(std::span<const uint8_t> rgb) {
  const size_t pixels = rgb.size() / 3;
  std::vector<uint8_t> planes(rgb.size());
  uint8_t* const y = planes.data();
  uint8_t* const cb = y + pixels;
  uint8_t* const cr = cb + pixels;
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t* const pixel = rgb.data() + 3 * i;
    y[i] = kY(pixel);
    cb[i] = kCb(pixel);
    cr[i] = kCr(pixel);
  }
  return planes;
}

class Y4mWriter final : public VideoWriter {
 public:
  Y4mWriter(const std::filesystem::path& path, const models::VideoShape& shape, double fps) : file_(path) {
    const FrameRate rate = frame_rate(fps);
    const std::string header = "YUV4MPEG2 W" + std::to_string(shape.width) + " H" + std::to_string(shape.height) +
                               " F" + std::to_string(rate.numerator) + ":" + std::to_string(rate.denominator) +
                               " Ip A1:1 C444 XYSCSS=444 XCOLORRANGE=LIMITED\n";
    write(header.data(), header.size());
  }

  void add(std::span<const uint8_t> frame) override {
    const std::vector<uint8_t> planes = yuv444(frame);
    write("FRAME\n", 6);
    write(planes.data(), planes.size());
  }

  WrittenVideo complete() override {
    file_.complete();
    return {.encoder = "y4m", .note = {}, .bytes = bytes_};
  }
  void place() override { file_.commit(); }

 private:
  void write(const void* data, size_t bytes) {
    file_.write(data, bytes);
    bytes_ += bytes;
  }

  models::AtomicFile file_;
  uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<VideoWriter> open_y4m(const std::filesystem::path& path, const models::VideoShape& shape,
                                      const VideoOptions& options) {
  return std::make_unique<Y4mWriter>(path, shape, options.fps);
}

}  // namespace sparsereel::app
