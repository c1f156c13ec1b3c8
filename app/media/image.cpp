// Chooses the reader by the first bytes of a file. Reads the formats that need no libraries, and turns pictures
// upright.
#include "app/media/image.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "app/media/image_readers.h"
#include "app/media/writers.h"
#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "models/files/regular_file.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;

std::string first_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(16, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Reads the header of a PPM or PGM: "P6 640 480 255" and a byte of white space. Comments may stand between the fields.
class PnmHeader {
 public:
  PnmHeader(const fs::path& path, std::string_view file) : path_(path), file_(file) {}

  int64_t number() {
    skip();
    int64_t value = 0;
    const size_t begin = place_;
    for (; place_ < file_.size() && std::isdigit(static_cast<unsigned char>(file_[place_])) != 0; ++place_)
      value = std::min<int64_t>(value * 10 + (file_[place_] - '0'), 1'000'000'000);
    if (place_ == begin) throw bad_file(path_, "is not a PPM: a number in its header is missing", kImageRemedy);
    return value;
  }
  /// Returns what follows the single white space after the header.
  std::string_view rest() const { return file_.substr(std::min(place_ + 1, file_.size())); }

 private:
  void skip() {
    while (place_ < file_.size()) {
      if (file_[place_] == '#')
        place_ = std::min(file_.find('\n', place_), file_.size());
      else if (std::isspace(static_cast<unsigned char>(file_[place_])) != 0)
        ++place_;
      else
        return;
    }
  }

  fs::path path_;
  std::string_view file_;
  size_t place_ = 2;
};

/// Reads P5 (gray) or P6 (RGB), in 8 or 16 bits.
Image read_pnm(const fs::path& path) {
  const std::string file = models::read_regular_file(path, kMostFileBytes, kImageRemedy);
  PnmHeader header(path, file);
  Image image;
  image.width = header.number();
  image.height = header.number();
  const int64_t most = header.number();
  check_image_size(path, image.height, image.width);
  if (most < 1 || most > 65535) throw bad_file(path, "is not a PPM: its largest value is not 1 to 65535", kImageRemedy);
  const size_t bytes = most > 255 ? 2 : 1, channels = file[1] == '6' ? 3 : 1;
  const auto pixels = static_cast<size_t>(image.height * image.width);
  const std::string_view data = header.rest();
  if (data.size() < pixels * channels * bytes) throw bad_file(path, "is truncated: pixels are missing", kImageRemedy);
  const auto value = [&](size_t index) {
    const auto byte = [&](size_t place) { return static_cast<int64_t>(static_cast<unsigned char>(data[place])); };
    const int64_t stored = bytes == 1 ? byte(index) : byte(2 * index) << 8 | byte(2 * index + 1);
    return static_cast<uint8_t>((std::min(stored, most) * 255 + most / 2) / most);
  };
  image.pixels.resize(pixels * 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = value(channels == 3 ? i : i / 3);
  return image;
}

/// Reads the tensor "image" [H, W, 3], or the last frame of "frames" [F, H, W, 3]; bytes, or floats in 0..1.
Image read_tensor(const fs::path& path) {
  const models::TensorFile file(path);
  const models::TensorEntry* entry = file.find("image");
  const size_t axes = entry != nullptr ? 3 : 4;
  if (entry == nullptr) entry = file.find("frames");
  const bool is_float = entry != nullptr && entry->dtype == models::Dtype::f32;
  if (entry == nullptr || entry->shape.size() != axes || entry->shape.back() != 3 || entry->elements() == 0 ||
      (!is_float && entry->dtype != models::Dtype::u8))
    throw bad_file(path, "has no picture",
                   "name a file with a tensor 'image' [height, width, 3] of U8, or of F32 in 0 to 1");
  Image image{.height = entry->shape[axes - 3], .width = entry->shape[axes - 2]};
  check_image_size(path, image.height, image.width);
  const auto count = static_cast<size_t>(image.height * image.width * 3);
  const std::span<const std::byte> all = file.data(*entry);
  const std::span<const std::byte> last = all.last(count * (is_float ? sizeof(float) : 1));
  image.pixels.resize(count);
  if (!is_float) {
    std::memcpy(image.pixels.data(), last.data(), count);
    return image;
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), last.data(), last.size());
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    throw bad_file(path, "has a picture that holds NaN or Inf", "give values in 0 to 1");
  image.pixels = rgb8(values);
  return image;
}

Image read_still(const fs::path& path, ImageFormat format) {
  const std::string file = models::read_regular_file(path, kMostFileBytes, kImageRemedy);
  const ImageHeader header = read_image_header(format, as_bytes(file));
  check_image_size(path, header.height, header.width);
  if (format == ImageFormat::jpeg && header.components == 4)
    throw bad_file(path, "is a CMYK picture, which is for printing", "save it as RGB first");
  if (format == ImageFormat::webp && header.animated)
    throw bad_file(path, "is an animated WebP", "save one of its pictures as a PNG first");
  if (header.animated) return decode_last_frame(path, header.orientation);
  return turned(decode_image(path, format, as_bytes(file)), header.orientation);
}

}  // namespace

void check_image_size(const fs::path& path, int64_t height, int64_t width) {
  if (height < 1 || width < 1) throw bad_file(path, "cannot be read as an image: it has no size", kImageRemedy);
  if (height > kMostImagePixels / width)
    throw bad_file(path,
                   "is a picture of " + std::to_string(width) + "x" + std::to_string(height) + ", more than " +
                       std::to_string(kMostImagePixels / 1'000'000) + " million pixels",
                   "scale it down first: no video shows as much");
}

Error out_of_time(const fs::path& path, std::chrono::seconds limit) {
  return bad_file(path, "FFmpeg did not reach its last frame within " + std::to_string(limit.count()) + " s",
                  "save that frame as a PNG, and give the PNG instead");
}

Image turned(const Image& image, int orientation) {
  if (orientation == 1) return image;
  // Orientations 5 to 8 swap rows and columns. The visible picture's first pixel is stored at the right in 2, 3, 7 and
  // 8, and at the bottom in 3, 4, 6 and 7.
  const bool swapped = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image result = image;
  if (swapped) std::swap(result.height, result.width);
  uint8_t* target = result.pixels.data();
  for (int64_t row = 0; row < result.height; ++row) {
    for (int64_t column = 0; column < result.width; ++column) {
      int64_t y = swapped ? column : row, x = swapped ? row : column;
      if (from_bottom) y = image.height - 1 - y;
      if (from_right) x = image.width - 1 - x;
      target = std::copy_n(image.pixels.data() + (y * image.width + x) * 3, 3, target);
    }
  }
  return result;
}

/// Refuses a folder, and a pattern such as "frame_%04d.png", which other programs read as a sequence.
void refuse_sequence(const fs::path& path) {
  const std::string remedy = "name one of its files; to continue a sequence, name the last one";
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw bad_file(path, "is a folder, but an image must be a single file", remedy);
  const std::string name = path.filename().string();
  const size_t percent = name.find('%');
  if (percent == std::string::npos || fs::exists(path, ignored)) return;
  const size_t kind = name.find_first_not_of("0123456789", percent + 1);
  if (kind != std::string::npos && name[kind] == 'd')
    throw bad_file(path, "is a pattern for many files, but an image must be a single file", remedy);
}

/// Refuses pipes, which may block, and devices, which may never end.
void require_regular_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) throw bad_file(path, "is not a regular file", kImageRemedy);
}

Image read_image(const fs::path& path) {
  refuse_sequence(path);
  const std::string extension = lower_case(path.extension().string());
  if (extension == ".safetensors") return read_tensor(path);
  require_regular_file(path);
  const std::string begin = first_bytes(path);
  if (begin.starts_with("P6") || begin.starts_with("P5")) return read_pnm(path);
  if (const auto format = image_format(as_bytes(begin))) return read_still(path, *format);
  if (!is_tiff_or_heif(as_bytes(begin))) return decode_last_frame(path, std::nullopt);
  const std::string file = models::read_regular_file(path, kMostFileBytes, kImageRemedy);
  return decode_last_frame(path, container_orientation(as_bytes(file)));
}

}  // namespace sparsereel::app
