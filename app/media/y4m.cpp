// YUV4MPEG2: uncompressed planar video that every encoder reads from a pipe or a file. Needs no library.
#include <cmath>

#include "app/media/writers.h"
#include "models/checkpoint/atomic_file.h"

namespace sparsereel::app {
namespace {

uint8_t to_byte(double value) {
  return static_cast<uint8_t>(std::lround(value));
}

/// Planes Y, Cb, Cr of one frame, BT.709 (ITU-R BT.709-6, items 3.2 to 3.5), limited range: 16..235 and 16..240.
std::vector<uint8_t> yuv444(const FramesView& frames, int64_t index) {
  const size_t pixels = static_cast<size_t>(frames.height * frames.width);
  const std::vector<uint8_t> rgb = rgb8(frames, index);
  std::vector<uint8_t> planes(pixels * 3);
  for (size_t i = 0; i < pixels; ++i) {
    const double r = rgb[3 * i] / 255.0, g = rgb[3 * i + 1] / 255.0, b = rgb[3 * i + 2] / 255.0;
    const double y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    planes[i] = to_byte(16 + 219 * y);
    planes[pixels + i] = to_byte(128 + 224 * (b - y) / 1.8556);
    planes[2 * pixels + i] = to_byte(128 + 224 * (r - y) / 1.5748);
  }
  return planes;
}

}  // namespace

WrittenVideo write_y4m(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options) {
  const FrameRate rate = frame_rate(options.fps);
  const std::string header = "YUV4MPEG2 W" + std::to_string(frames.width) + " H" + std::to_string(frames.height) +
                             " F" + std::to_string(rate.numerator) + ":" + std::to_string(rate.denominator) +
                             " Ip A1:1 C444 XYSCSS=444 XCOLORRANGE=LIMITED\n";
  models::AtomicFile file(path);
  file.write(header.data(), header.size());
  uint64_t bytes = header.size();
  for (int64_t i = 0; i < frames.frames; ++i) {
    const std::vector<uint8_t> planes = yuv444(frames, i);
    file.write("FRAME\n", 6);
    file.write(planes.data(), planes.size());
    bytes += 6 + planes.size();
  }
  file.commit();
  return {.encoder = "y4m", .note = {}, .bytes = bytes};
}

}  // namespace sparsereel::app
