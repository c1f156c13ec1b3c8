// Text in pictures of charts, drawn by OpenCV.
#pragma once

#include <opencv2/imgproc.hpp>
#include <string>

namespace sparsereel::app {

inline const cv::Scalar kInk(40, 40, 40), kPaper(255, 255, 255);

struct Lettering {
  static constexpr int kFace = cv::FONT_HERSHEY_SIMPLEX;
  double scale = 1;  // of the face's own size

  /// `at`: the left end of the base line, in pixels.
  void write(cv::Mat& image, const std::string& text, const cv::Point& at, const cv::Scalar& colour = kInk) const {
    cv::putText(image, text, at, kFace, scale, colour, 1, cv::LINE_AA);
  }
  int width_of(const std::string& text) const { return cv::getTextSize(text, kFace, scale, 1, nullptr).width; }
};

}  // namespace sparsereel::app
