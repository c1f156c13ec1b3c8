// Encodes PNGs (ISO/IEC 15948) with zlib. A build without zlib stores the pixels uncompressed.
#include "app/media/png.h"

#include <array>
#include <cstdlib>
#include <string_view>

#ifdef SPARSEREEL_ZLIB
#include <zlib.h>
#endif

#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

using Bytes = std::vector<uint8_t>;

void append(Bytes& bytes, uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

#ifdef SPARSEREEL_ZLIB
uint32_t crc_of(std::span<const uint8_t> bytes) {
  return static_cast<uint32_t>(crc32(0, bytes.data(), static_cast<uInt>(bytes.size())));
}

Bytes compressed(const Bytes& bytes) {
  constexpr int kLevel = 6;
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  Bytes result(size);
  if (compress2(result.data(), &size, bytes.data(), static_cast<uLong>(bytes.size()), kLevel) != Z_OK)
    throw std::bad_alloc();
  result.resize(size);
  return result;
}
#else
uint32_t crc_of(std::span<const uint8_t> bytes) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// Returns a zlib stream (RFC 1950) of stored, that is uncompressed, blocks.
Bytes compressed(const Bytes& bytes) {
  constexpr size_t kMostInBlock = 65535;
  Bytes result = {0x78, 0x01};
  uint32_t low = 1, high = 0;  // Adler-32
  for (const uint8_t byte : bytes) {
    low = (low + byte) % 65521;
    high = (high + low) % 65521;
  }
  for (size_t place = 0; place < bytes.size(); place += kMostInBlock) {
    const size_t size = std::min(kMostInBlock, bytes.size() - place);
    const bool last = place + size == bytes.size();
    const auto little = static_cast<unsigned>(size), inverse = ~little;
    for (const unsigned value : {last ? 1U : 0U, little, little >> 8U, inverse, inverse >> 8U})
      result.push_back(static_cast<uint8_t>(value));
    result.insert(result.end(), bytes.begin() + static_cast<ptrdiff_t>(place),
                  bytes.begin() + static_cast<ptrdiff_t>(place + size));
  }
  append(result, high << 16U | low);
  return result;
}
#endif

void append_chunk(Bytes& png, std::string_view kind, const Bytes& data) {
  append(png, static_cast<uint32_t>(data.size()));
  const size_t begin = png.size();
  png.insert(png.end(), kind.begin(), kind.end());
  png.insert(png.end(), data.begin(), data.end());
  append(png, crc_of(std::span(png).subspan(begin)));
}

uint8_t paeth(int left, int above, int corner) {
  const int guess = left + above - corner;
  const int a = std::abs(guess - left), b = std::abs(guess - above), c = std::abs(guess - corner);
  return static_cast<uint8_t>(a <= b && a <= c ? left : b <= c ? above : corner);
}

/// Applies PNG's filter Paeth, which suits photographs, to each row.
Bytes filtered(std::span<const uint8_t> pixels, size_t width, size_t height) {
  constexpr uint8_t kPaeth = 4;
  const size_t row_bytes = width * 3;
  Bytes rows;
  rows.reserve((row_bytes + 1) * height);
  for (size_t y = 0; y < height; ++y) {
    const uint8_t* row = pixels.data() + y * row_bytes;
    const uint8_t* above = y == 0 ? nullptr : row - row_bytes;
    rows.push_back(kPaeth);
    for (size_t x = 0; x < row_bytes; ++x) {
      const int left = x < 3 ? 0 : row[x - 3], up = above == nullptr ? 0 : above[x];
      const int corner = x < 3 || above == nullptr ? 0 : above[x - 3];
      rows.push_back(static_cast<uint8_t>(row[x] - paeth(left, up, corner)));
    }
  }
  return rows;
}

}  // namespace

PngEncoder png_encoder(int width, int height, const std::filesystem::path&) {
  return [width, height](std::span<const uint8_t> pixels) {
    Bytes header;
    append(header, static_cast<uint32_t>(width));
    append(header, static_cast<uint32_t>(height));
    header.insert(header.end(), {8, 2, 0, 0, 0});  // 8 bits, RGB, deflate, the usual filters, not interlaced
    Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    append_chunk(png, "IHDR", header);
    append_chunk(png, "IDAT", compressed(filtered(pixels, static_cast<size_t>(width), static_cast<size_t>(height))));
    append_chunk(png, "IEND", {});
    return png;
  };
}

}  // namespace sparsereel::app
