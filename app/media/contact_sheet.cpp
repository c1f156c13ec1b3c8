// Draws a contact sheet (evenly spaced frames in rows, a caption below) and writes it as one PNG.
#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <utility>

#include "app/media/drawing.h"
#include "app/media/png.h"
#include "app/media/writers.h"

namespace sparsereel::app {
namespace {

constexpr int kGap = 4;  // pixels between frames
constexpr int kMostInRow = 6;
constexpr int kWidestFrame = 320;  // wider frames are scaled down, so that a row stays below 2000 pixels
constexpr int kLineHeight = 18;
constexpr size_t kMostLines = 6;
constexpr size_t kMostCharacters = 10'000;  // bytes of the caption that are read; kMostLines lines hold fewer

constexpr std::string_view kStandIn = "?";

/// Returns the length in bytes of a combining accent (U+0300 to U+036F) at the beginning of `text`; 0 if there is none.
size_t accent_length(std::string_view text) {
  if (text.size() < 2) return 0;
  const auto lead = static_cast<unsigned char>(text[0]), next = static_cast<unsigned char>(text[1]);
  return lead == 0xCCU || (lead == 0xCDU && next < 0xB0U) ? 2 : 0;
}

/// Returns the first character of `text` in ASCII, because the font has no other characters. Letters lose their
/// accents, and typographic quotes and dashes become plain ones. Returns kStandIn for any other character. `taken`
/// receives the character's length in bytes.
std::string_view plain(std::string_view text, size_t& taken) {
  static constexpr std::string_view kLatin =
      "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty";  // U+00C0 on
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kTypography = {{{"\u2018", "'"},
                                                                                                {"\u2019", "'"},
                                                                                                {"\u201c", "\""},
                                                                                                {"\u201d", "\""},
                                                                                                {"\u2013", "-"},
                                                                                                {"\u2014", "-"},
                                                                                                {"\u2026", "..."}}};
  taken = 1;
  const auto byte = static_cast<unsigned char>(text.front());
  if (byte < 0x80U) return byte < 0x20U ? " " : text.substr(0, 1);
  if (byte == 0xC3U && text.size() > 1) {
    taken = 2;
    return kLatin.substr(static_cast<unsigned char>(text[1]) & 0x3FU, 1);
  }
  for (const auto& [fine, coarse] : kTypography) {
    taken = fine.size();
    if (text.starts_with(fine)) return coarse;
  }
  if (taken = accent_length(text); taken > 0) return {};
  taken = byte < 0xC0U ? 1 : byte < 0xE0U ? 2 : byte < 0xF0U ? 3 : 4;
  taken = std::min(taken, text.size());
  return kStandIn;
}

/// Converts text to ASCII. Consecutive unknown characters share one stand-in, because an emoji or a letter of some
/// scripts may be several characters.
std::string in_ascii(std::string_view text) {
  std::string result;
  bool stands_in = false;
  for (size_t taken = 0; !text.empty(); text.remove_prefix(taken)) {
    const std::string_view character = plain(text, taken);
    const bool unknown = character.data() == kStandIn.data();
    if (!unknown || !stands_in) result += character;
    stands_in = unknown;
  }
  return result;
}

/// Breaks the text into at most kMostLines lines; the last ends in "..." if words remain.
std::vector<std::string> wrap(std::string_view text, int width) {
  const auto fits = [width](const std::string& line) { return text_width(line) <= width; };
  std::vector<std::string> lines;
  std::istringstream words(in_ascii(text.substr(0, kMostCharacters)));
  for (std::string word; words >> word;) {
    const std::string longer = lines.empty() ? word : lines.back() + " " + word;
    if (!lines.empty() && fits(longer)) {
      lines.back() = longer;
    } else if (lines.size() < kMostLines) {
      lines.push_back(word);
    } else {
      while (!fits(lines.back() + " ...") && lines.back().find(' ') != std::string::npos)
        lines.back().resize(lines.back().rfind(' '));
      lines.back() += " ...";
      break;
    }
  }
  return lines;
}

Image scaled_frame(const models::VideoShape& shape, const std::vector<uint8_t>& pixels) {
  Image frame{.height = shape.height, .width = shape.width, .pixels = pixels};
  if (frame.width <= kWidestFrame) return frame;
  return shrunk(frame, std::max<int64_t>(1, frame.height * kWidestFrame / frame.width), kWidestFrame);
}

void copy(const Image& from, Image& to, int64_t left, int64_t top) {
  for (int64_t y = 0; y < from.height; ++y)
    std::copy_n(from.pixels.data() + y * from.width * 3, from.width * 3,
                to.pixels.data() + ((top + y) * to.width + left) * 3);
}

Image draw(const std::vector<Image>& frames, const std::string& caption) {
  const int64_t shown = std::ssize(frames);
  const int64_t columns = std::min<int64_t>(shown, kMostInRow), rows = (shown + columns - 1) / columns;
  const int64_t cell_width = frames.front().width + kGap, cell_height = frames.front().height + kGap;
  const int64_t width = columns * cell_width + kGap;
  const std::vector<std::string> lines = wrap(caption, static_cast<int>(width - 2 * kGap));
  Image sheet{.height = rows * cell_height + kGap + std::ssize(lines) * kLineHeight, .width = width};
  sheet.pixels.assign(static_cast<size_t>(sheet.height * sheet.width) * 3, 255);
  for (int64_t i = 0; i < shown; ++i)
    copy(frames[static_cast<size_t>(i)], sheet, kGap + i % columns * cell_width, kGap + i / columns * cell_height);
  int64_t baseline = rows * cell_height + kGap - 5;
  for (const std::string& line : lines) draw_text(sheet, line, kGap, baseline += kLineHeight);
  return sheet;
}

}  // namespace

void write_contact_sheet(const std::filesystem::path& path, const models::VideoShape& shape,
                         const std::vector<std::vector<uint8_t>>& frames, const std::string& caption) {
  check_contact_sheet(path);
  std::vector<Image> scaled;
  for (const std::vector<uint8_t>& frame : frames) scaled.push_back(scaled_frame(shape, frame));
  const Image sheet = draw(scaled, caption);
  write_png(path, static_cast<int>(sheet.width), static_cast<int>(sheet.height), sheet.pixels);
}

}  // namespace sparsereel::app
