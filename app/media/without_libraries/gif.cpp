// Writes GIF through the ffmpeg program, with one palette for the whole clip and ordered dithering.
#include <algorithm>
#include <cmath>
#include <set>

#include "app/media/without_libraries/ffmpeg_program.h"
#include "app/media/writers.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

constexpr size_t kPaletteColors = 255;  // the last of the 256 entries is transparent

class GifWriter final : public VideoWriter {
 public:
  GifWriter(const std::filesystem::path& path, const models::VideoShape& shape, double fps)
      : shape_(shape), fps_(fps), file_(path) {}

  void add(std::span<const uint8_t> frame) override {
    frames_.emplace_back(frame.begin(), frame.end());
    for (size_t i = 0; i < frame.size() && colors_.size() <= kPaletteColors; i += 3)
      colors_.insert(frame[i] << 16 | frame[i + 1] << 8 | frame[i + 2]);
  }

  WrittenVideo complete() override {
    Ffmpeg ffmpeg({.arguments = arguments(), .file = file_.target(), .output = false});
    const bool taken = std::ranges::all_of(frames_, [&](const auto& frame) { return ffmpeg.write(frame); });
    const std::string failure = ffmpeg.finish();
    if (!taken || !failure.empty()) throw_ffmpeg_failure(file_.target(), failure);
    const uint64_t bytes = std::filesystem::file_size(file_.temporary());
    file_.complete();
    return {.encoder = "gif", .note = {}, .bytes = bytes};
  }
  void place() override { file_.commit(); }

 private:
  std::vector<std::string> arguments() const {
    const auto last_delay = std::max<int64_t>(1, std::llround(100 / fps_));  // hundredths of a second
    const std::string dither = colors_.size() > kPaletteColors ? "bayer:bayer_scale=3" : "none";
    std::vector<std::string> words = raw_frames(shape_.width, shape_.height, fps_);
    const std::vector<std::string> encoding = {
        "-filter_complex",
        "split[a][b];[a]palettegen=stats_mode=full[p];[b][p]paletteuse=dither=" + dither,
        "-fflags",
        "+bitexact",
        "-final_delay",
        std::to_string(last_delay),
        "-f",
        "gif",
        "file:" + file_.temporary().string()};
    words.insert(words.end(), encoding.begin(), encoding.end());
    return words;
  }

  models::VideoShape shape_;
  double fps_;
  models::AtomicFile file_;
  std::vector<std::vector<uint8_t>> frames_;  // all frames, because the palette depends on all of them
  std::set<int> colors_;                      // distinct colors, up to one more than fit in the palette
};

}  // namespace

std::unique_ptr<VideoWriter> open_gif(const std::filesystem::path& path, const models::VideoShape& shape,
                                      const VideoOptions& options) {
  require_media(path);
  return std::make_unique<GifWriter>(path, shape, options.fps);
}

}  // namespace sparsereel::app
