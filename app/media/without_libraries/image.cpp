// Decodes pictures, and the last frame of videos, through the ffmpeg program.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

#include "app/media/image_readers.h"
#include "app/media/without_libraries/ffmpeg_program.h"
#include "app/media/writers.h"
#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

Error unreadable(const fs::path& path, const std::string& reason) {
  if (reason.find("whitelist") != std::string::npos)
    return bad_file(path, "is neither a picture nor a video in one file", kImageRemedy);
  return bad_file(path, "cannot be read as an image: " + reason, kImageRemedy);
}

/// Takes the pictures out of ffmpeg's output and keeps the last one. The output is a sequence of PPMs of 8 or 16 bits.
class LastPicture {
 public:
  explicit LastPicture(const fs::path& path) : path_(path) {}

  std::vector<uint8_t>& bytes() { return bytes_; }

  /// Removes the pictures that have arrived completely from bytes(), and keeps the last of them.
  void take() {
    size_t place = 0;
    while (const size_t size = size_at(place)) {
      if (bytes_.size() - place < size) break;
      place += size;
      last_ = Image{.height = height_, .width = width_};
      last_->pixels.resize(static_cast<size_t>(height_ * width_) * 3);
      const uint8_t* from = bytes_.data() + place - last_->pixels.size() * sample_bytes_;
      for (uint8_t& pixel : last_->pixels)
        pixel = *std::exchange(from, from + sample_bytes_);  // the high byte is first
    }
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(place));
  }
  std::optional<Image>& image() { return last_; }

 private:
  /// Returns the size in bytes of the PPM that begins at `place`, from its header "P6\n640 480\n255\n"; 0 if the header
  /// is not complete.
  size_t size_at(size_t place) {
    constexpr size_t kLongestHeader = 64;
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + place,
                                std::min(bytes_.size() - place, kLongestHeader));
    size_t end = 0;
    for (int line = 0; line < 3; ++line) {
      end = text.find('\n', end);
      if (end == std::string_view::npos) return 0;
      ++end;
    }
    const char* const last = text.data() + text.size();
    const auto [space, bad_width] = std::from_chars(text.data() + 3, last, width_);
    const auto [rest, bad_height] = std::from_chars(std::min(space + 1, last), last, height_);
    if (!text.starts_with("P6\n") || bad_width != std::errc() || bad_height != std::errc())
      throw unreadable(path_, "ffmpeg's output is not a PPM");
    check_image_size(path_, height_, width_);
    sample_bytes_ = text.substr(0, end).ends_with("\n255\n") ? 1 : 2;
    return end + static_cast<size_t>(height_ * width_) * 3 * sample_bytes_;
  }

  fs::path path_;
  std::vector<uint8_t> bytes_;
  std::optional<Image> last_;
  int64_t height_ = 0, width_ = 0;  // of the picture whose header size_at() has read
  size_t sample_bytes_ = 1;
};

/// Runs ffmpeg with these options for reading. Returns the last picture, or nothing if there is none; `why` then
/// receives the reason.
std::optional<Image> read_last(const fs::path& path, const Words& reading, std::chrono::seconds limit,
                               std::string& why) {
  require_media(path);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));  // NOLINT(cppcoreguidelines-pro-type-vararg): POSIX
  if (file.number() < 0) throw unreadable(path, std::generic_category().message(errno));
  Words arguments = {"-protocol_whitelist",
                     "file",
                     "-format_whitelist",
                     kReaders,
                     "-max_pixels",
                     std::to_string(kMostImagePixels),
                     "-threads",
                     "1"};
  arguments.insert(arguments.end(), reading.begin(), reading.end());
  for (const char* word :
       {"-i", Ffmpeg::kInput, "-vf", "scale=flags=bicubic+accurate_rnd+full_chroma_int,format=rgb24|rgb48be", "-c:v",
        "ppm", "-f", "image2pipe", "pipe:1"})
    arguments.emplace_back(word);
  Ffmpeg ffmpeg({.arguments = arguments, .file = path, .input = file.number(), .limit = limit});
  LastPicture pictures(path);
  while (ffmpeg.read(pictures.bytes())) pictures.take();
  why = ffmpeg.finish();
  if (ffmpeg.is_out_of_time()) throw out_of_time(path, limit);
  if (!why.empty()) return {};
  why = "no picture came out";
  return std::move(pictures.image());
}

const char* reader_of(ImageFormat format) {
  if (format == ImageFormat::jpeg) return "jpeg_pipe";
  return format == ImageFormat::png ? "png_pipe" : "webp_pipe";
}

}  // namespace

Image decode_image(const fs::path& path, ImageFormat format, std::span<const std::byte>) {
  const Words reading = {"-xerror",       "-err_detect", "crccheck+bitstream+buffer+explode",
                         "-noautorotate", "-f",          reader_of(format)};
  std::string why;
  std::optional<Image> image = read_last(path, reading, kMostSearch, why);
  if (!image) throw unreadable(path, why);
  return std::move(*image);
}

Image decode_last_frame(const fs::path& path, std::optional<int> orientation, std::chrono::seconds limit) {
  Words reading;
  if (orientation) reading.emplace_back("-noautorotate");
  Words from_the_end = reading;
  for (const char* word : {"-sseof", "-0.001", "-noaccurate_seek"}) from_the_end.emplace_back(word);
  std::string why;
  std::optional<Image> image = read_last(path, from_the_end, limit, why);
  if (!image) image = read_last(path, reading, limit, why);
  if (!image) throw unreadable(path, why);
  return turned(*image, orientation.value_or(1));
}

}  // namespace sparsereel::app
