// Draws with OpenCV.
#include "app/media/drawing.h"

#include <opencv2/imgproc.hpp>

namespace sparsereel::app {
namespace {

constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;
constexpr double kFontScale = 0.45;

/// Wraps the pixels, which are not copied.
cv::Mat view(Image& picture) {
  return {static_cast<int>(picture.height), static_cast<int>(picture.width), CV_8UC3, picture.pixels.data()};
}

}  // namespace

int text_width(const std::string& line) {
  return cv::getTextSize(line, kFont, kFontScale, 1, nullptr).width;
}

void draw_text(Image& picture, const std::string& line, int64_t left, int64_t baseline) {
  cv::Mat target = view(picture);
  const cv::Point start(static_cast<int>(left), static_cast<int>(baseline));
  cv::putText(target, line, start, kFont, kFontScale, cv::Scalar::all(0), 1, cv::LINE_AA);
}

Image shrunk(const Image& picture, int64_t height, int64_t width) {
  Image source = picture, result{.height = height, .width = width};
  result.pixels.resize(static_cast<size_t>(height * width) * 3);
  cv::Mat target = view(result);
  cv::resize(view(source), target, target.size(), 0, 0, cv::INTER_AREA);
  return result;
}

}  // namespace sparsereel::app
