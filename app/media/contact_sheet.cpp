// A contact sheet: evenly spaced frames in rows and a caption under them, drawn with OpenCV, written as one PNG.
#include <algorithm>
#include <opencv2/imgproc.hpp>
#include <sstream>

#include "app/media/png.h"
#include "app/media/writers.h"

namespace sparsereel::app {
namespace {

constexpr int kGap = 4;  // pixels between frames
constexpr int kMostInRow = 6;
constexpr int kWidestFrame = 320;  // wider frames are scaled down, so that a row stays below 2000 pixels
constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
constexpr double kFontScale = 0.45;
constexpr int kLineHeight = 18;

/// The font knows ASCII alone.
std::string printable(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) == 0x80U) continue;  // inside a UTF-8 character that already gave its '?'
    result += byte >= 0x80U ? '?' : (byte < 0x20U ? ' ' : c);
  }
  return result;
}

std::vector<std::string> wrap(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::istringstream words(printable(text));
  for (std::string word; words >> word;) {
    const std::string longer = lines.empty() ? word : lines.back() + " " + word;
    const bool fits = cv::getTextSize(longer, kFont, kFontScale, 1, nullptr).width <= width;
    if (lines.empty() || !fits) {
      lines.push_back(word);
    } else {
      lines.back() = longer;
    }
  }
  return lines;
}

cv::Mat scaled_frame(const FramesView& frames, int64_t index) {
  std::vector<uint8_t> pixels = rgb8(frames, index);
  const cv::Mat view(static_cast<int>(frames.height), static_cast<int>(frames.width), CV_8UC3, pixels.data());
  if (view.cols <= kWidestFrame) return view.clone();
  cv::Mat small;
  cv::resize(view, small, cv::Size(kWidestFrame, std::max(1, view.rows * kWidestFrame / view.cols)), 0, 0,
             cv::INTER_AREA);
  return small;
}

cv::Mat draw(const FramesView& frames, const std::string& caption, int64_t count) {
  const int shown = static_cast<int>(std::clamp<int64_t>(count, 1, frames.frames));
  const int columns = std::min(shown, kMostInRow), rows = (shown + columns - 1) / columns;
  const cv::Mat first = scaled_frame(frames, 0);
  const int cell_width = first.cols + kGap, cell_height = first.rows + kGap;
  const int width = columns * cell_width + kGap;
  const std::vector<std::string> lines = wrap(caption, width - 2 * kGap);
  const int text_height = static_cast<int>(lines.size()) * kLineHeight;
  cv::Mat sheet(rows * cell_height + kGap + text_height, width, CV_8UC3, cv::Scalar::all(255));
  for (int i = 0; i < shown; ++i) {
    const int64_t index = shown == 1 ? 0 : i * (frames.frames - 1) / (shown - 1);
    const cv::Point corner(kGap + i % columns * cell_width, kGap + i / columns * cell_height);
    scaled_frame(frames, index).copyTo(sheet(cv::Rect(corner, first.size())));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const cv::Point baseline(kGap, rows * cell_height + kGap + static_cast<int>(i + 1) * kLineHeight - 5);
    cv::putText(sheet, lines[i], baseline, kFont, kFontScale, cv::Scalar::all(0), 1, cv::LINE_AA);
  }
  return sheet;
}

}  // namespace

void write_contact_sheet(const std::filesystem::path& path, const FramesView& frames, const std::string& caption,
                         int64_t count) {
  check_contact_sheet(path);
  const cv::Mat sheet = draw(frames, caption, count);
  write_png(path, sheet.cols, sheet.rows, {sheet.datastart, sheet.dataend});
}

}  // namespace sparsereel::app
