// Names the media libraries of this build. without_libraries/ has the counterpart for a build without them.
#include <opencv2/core.hpp>

#include "app/media/with_libraries/ffmpeg.h"
#include "app/media/writers.h"

namespace sparsereel::app {

void require_media(const std::filesystem::path&) {}

MediaReport media_report() {
  return {.libraries = std::string("FFmpeg ") + av_version_info() + ", OpenCV " + cv::getVersionString(),
          .formats = format_encoders()};
}

}  // namespace sparsereel::app
