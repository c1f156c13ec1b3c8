// Walks over the segments, chunks or boxes of a picture's file to find the size in pixels and the orientation.
#include "app/media/image_header.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace sparsereel::app {
namespace {

/// The bytes of a file. Any byte beyond their end reads as 0, so that damaged files need no special checks.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }
  uint32_t at(size_t place) const { return place < bytes_.size() ? static_cast<uint32_t>(bytes_[place]) : 0; }
  /// Returns a big-endian number of `count` bytes.
  uint32_t big(size_t place, int count) const {
    uint32_t number = 0;
    for (int i = 0; i < count; ++i) number = number << 8 | at(place + static_cast<size_t>(i));
    return number;
  }
  uint32_t little(size_t place, int count) const {
    uint32_t number = 0;
    for (int i = count - 1; i >= 0; --i) number = number << 8 | at(place + static_cast<size_t>(i));
    return number;
  }
  bool is(size_t place, std::string_view text) const {
    if (place > size() || text.size() > size() - place) return false;
    return std::ranges::equal(bytes_.subspan(place, text.size()), text, {}, {},
                              [](char c) { return static_cast<std::byte>(c); });
  }
  Bytes part(size_t place, size_t count) const {
    place = std::min(place, size());
    return Bytes(bytes_.subspan(place, std::min(count, size() - place)));
  }

 private:
  std::span<const std::byte> bytes_;
};

constexpr std::string_view kExif("Exif\0\0", 6);

/// Returns the orientation tag from the first directory of a TIFF; 1 if there is none. EXIF data are a TIFF, too.
int orientation_of(const Bytes& tiff) {
  constexpr uint32_t kTag = 0x112;
  const bool little = tiff.is(0, "II");
  if (!little && !tiff.is(0, "MM")) return 1;
  const auto number = [&](size_t place, int count) {
    return little ? tiff.little(place, count) : tiff.big(place, count);
  };
  const size_t directory = number(4, 4);
  const uint32_t count = number(directory, 2);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry >= tiff.size()) break;
    if (number(entry, 2) != kTag) continue;
    const uint32_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

/// Reads segments up to the pixels. A segment is the byte 0xff, a byte with its kind and, for most kinds, a length and
/// data.
void read_jpeg(const Bytes& file, ImageHeader& header) {
  size_t place = 2;
  while (place + 4 <= file.size()) {
    if (file.at(place) != 0xff) return;
    const uint32_t kind = file.at(place + 1);
    if (kind == 0xff) {  // fill byte
      ++place;
      continue;
    }
    if (kind == 0x01 || (kind >= 0xd0 && kind <= 0xd8)) {  // segments without a length
      place += 2;
      continue;
    }
    if (kind == 0xd9 || kind == 0xda) return;  // end of the image, or start of the pixels
    const size_t length = file.big(place + 2, 2);
    const bool is_frame = kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc;
    if (is_frame) {
      header.height = file.big(place + 5, 2);
      header.width = file.big(place + 7, 2);
      header.components = static_cast<int>(file.at(place + 9));
    }
    if (kind == 0xe1 && file.is(place + 4, kExif) && length > 8)
      header.orientation = orientation_of(file.part(place + 10, length - 8));
    if (length < 2) return;
    place += 2 + length;
  }
}

/// Reads chunks: length, kind, data and checksum.
void read_png(const Bytes& file, ImageHeader& header) {
  for (size_t place = 8; place + 12 <= file.size();) {
    const size_t length = file.big(place, 4);
    if (file.is(place + 4, "IHDR")) {
      header.width = file.big(place + 8, 4);
      header.height = file.big(place + 12, 4);
    }
    if (file.is(place + 4, "acTL")) header.animated = true;
    if (file.is(place + 4, "eXIf")) header.orientation = orientation_of(file.part(place + 8, length));
    place += 12 + length;
  }
}

/// Reads chunks: kind, length and data, padded to an even number of bytes.
void read_webp(const Bytes& file, ImageHeader& header) {
  for (size_t place = 12; place + 8 <= file.size();) {
    const size_t length = file.little(place + 4, 4), data = place + 8;
    if (file.is(place, "VP8X")) {
      header.animated = (file.at(data) & 2) != 0;
      header.width = file.little(data + 4, 3) + 1;
      header.height = file.little(data + 7, 3) + 1;
    }
    if (file.is(place, "VP8 ") && header.width == 0) {
      header.width = file.little(data + 6, 2) & 0x3fff;
      header.height = file.little(data + 8, 2) & 0x3fff;
    }
    if (file.is(place, "VP8L") && header.width == 0) {
      const uint32_t sizes = file.little(data + 1, 4);
      header.width = (sizes & 0x3fff) + 1;
      header.height = (sizes >> 14 & 0x3fff) + 1;
    }
    if (file.is(place, "EXIF"))
      header.orientation = orientation_of(file.part(data + (file.is(data, kExif) ? kExif.size() : 0), length));
    place = data + length + length % 2;
  }
}

/// The boxes of an ISO base media file (ISO/IEC 14496-12): each has a length, a kind and content.
struct Boxes {
  const Bytes& bytes;

  /// Calls visit(place, content) for each box, where `place` is the index of the box's kind in `bytes`.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (size_t place = 0; place + 8 <= bytes.size();) {
      const size_t length = bytes.big(place, 4), left = bytes.size() - place;
      const bool is_wide = length == 1;
      const size_t header = is_wide ? 16 : 8;
      // A wide length has 8 bytes. Its upper 4 bytes are ignored: they are 0 unless the box is larger than 4 GiB, and
      // no box that matters here is.
      const size_t whole = length == 0 ? left : is_wide ? bytes.big(place + 12, 4) : length;
      if (whole < header) return;
      visit(place + 4, bytes.part(place + header, whole - header));
      if (whole >= left) return;
      place += whole;
    }
  }

  /// Returns the content of the first box of this kind; empty if none.
  Bytes find(std::string_view kind) const {
    std::optional<Bytes> found;
    each([&](size_t name, const Bytes& content) {
      if (!found && bytes.is(name, kind)) found = content;
    });
    return found.value_or(Bytes({}));
  }
};

constexpr size_t kFullBox = 4;  // bytes of version and flags

Bytes behind(const Bytes& bytes, size_t count) {
  return bytes.part(count, bytes.size());
}

/// Returns the numbers of the item's properties, counted from 1, from the box ipma.
std::vector<size_t> properties_of_item(const Bytes& associations, uint32_t item) {
  const bool is_wide = (associations.at(3) & 1) != 0;  // this flag says that a property's number has 2 bytes
  const int id_bytes = associations.at(0) < 1 ? 2 : 4;
  std::vector<size_t> properties;
  size_t place = kFullBox + 4;
  for (uint32_t left = associations.big(kFullBox, 4); left > 0 && place < associations.size(); --left) {
    const uint32_t id = associations.big(place, id_bytes);
    place += static_cast<size_t>(id_bytes);
    const uint32_t count = associations.at(place++);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t number = is_wide ? associations.big(place, 2) & 0x7fff : associations.at(place) & 0x7f;
      place += is_wide ? 2 : 1;
      if (id == item) properties.push_back(number);
    }
  }
  return properties;
}

/// Returns the EXIF orientation for `quarters` anticlockwise quarter turns. If `mirror` is set, the picture is mirrored
/// after the turns: 0 exchanges top and bottom, 1 exchanges left and right.
int orientation_of(uint32_t quarters, std::optional<uint32_t> mirror) {
  constexpr std::array<int, 4> kTurned = {1, 8, 3, 6};
  constexpr std::array<std::array<int, 4>, 2> kMirrored = {{{4, 5, 2, 7}, {2, 7, 4, 5}}};
  return mirror ? kMirrored[*mirror][quarters] : kTurned[quarters];
}

int heif_orientation(const Bytes& file) {
  const Bytes meta = behind(Boxes{file}.find("meta"), kFullBox);
  const Bytes primary = Boxes{meta}.find("pitm"), properties = Boxes{meta}.find("iprp");
  const uint32_t item = primary.big(kFullBox, primary.at(0) == 0 ? 2 : 4);
  const std::vector<size_t> own = properties_of_item(Boxes{properties}.find("ipma"), item);
  const Bytes all = Boxes{properties}.find("ipco");
  uint32_t quarters = 0;
  std::optional<uint32_t> mirror;
  size_t number = 0;
  Boxes{all}.each([&](size_t name, const Bytes& content) {
    if (std::ranges::find(own, ++number) == own.end()) return;
    if (all.is(name, "irot")) quarters = content.at(0) & 3;
    if (all.is(name, "imir")) mirror = content.at(0) & 1;
  });
  return orientation_of(quarters, mirror);
}

bool is_tiff(const Bytes& file) {
  return file.is(0, std::string_view("II*\0", 4)) || file.is(0, std::string_view("MM\0*", 4));
}

}  // namespace

bool is_tiff_or_heif(std::span<const std::byte> file) {
  const Bytes bytes(file);
  constexpr std::array<std::string_view, 4> kStills = {"avif", "mif1", "heic", "heix"};
  const bool is_still = std::ranges::any_of(kStills, [&](std::string_view brand) { return bytes.is(8, brand); });
  return is_tiff(bytes) || (bytes.is(4, "ftyp") && is_still);
}

int container_orientation(std::span<const std::byte> file) {
  const Bytes bytes(file);
  return is_tiff(bytes) ? orientation_of(bytes) : heif_orientation(bytes);
}

std::optional<ImageFormat> image_format(std::span<const std::byte> file) {
  const Bytes bytes(file);
  if (bytes.is(0, "\xff\xd8\xff")) return ImageFormat::jpeg;
  if (bytes.is(0, "\x89PNG\r\n\x1a\n")) return ImageFormat::png;
  if (bytes.is(0, "RIFF") && bytes.is(8, "WEBP")) return ImageFormat::webp;
  return std::nullopt;
}

ImageHeader read_image_header(ImageFormat format, std::span<const std::byte> file) {
  ImageHeader header{.format = format};
  const Bytes bytes(file);
  if (format == ImageFormat::jpeg) read_jpeg(bytes, header);
  if (format == ImageFormat::png) read_png(bytes, header);
  if (format == ImageFormat::webp) read_webp(bytes, header);
  return header;
}

}  // namespace sparsereel::app
