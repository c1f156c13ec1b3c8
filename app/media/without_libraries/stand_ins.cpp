// Replaces what needs FFmpeg or OpenCV in a build without them. Each function says what such a build can do.
#include "app/media/image_readers.h"
#include "app/media/writers.h"
#include "hilbert/error.h"

namespace sparsereel::app {

void require_media_libraries(const std::filesystem::path& path) {
  throw bad_file(path, "this build has no media libraries and writes only .y4m and .safetensors",
                 "choose one of these, or build with FFmpeg and OpenCV (-DSPARSEREEL_MEDIA=ON)");
}

std::unique_ptr<VideoWriter> open_encoded(const std::filesystem::path& path, const models::VideoShape&,
                                          const VideoOptions&) {
  require_media_libraries(path);
  return {};
}

std::unique_ptr<VideoWriter> open_gif(const std::filesystem::path& path, const models::VideoShape&,
                                      const VideoOptions&) {
  require_media_libraries(path);
  return {};
}

std::unique_ptr<VideoWriter> open_png_folder(const std::filesystem::path& path, const models::VideoShape&) {
  require_media_libraries(path);
  return {};
}

void write_contact_sheet(const std::filesystem::path& path, const models::VideoShape&,
                         const std::vector<std::vector<uint8_t>>&, const std::string&) {
  require_media_libraries(path);
}

void check_encoder(const std::filesystem::path& path, const VideoOptions&) {
  require_media_libraries(path);
}

void check_frame_size(const std::filesystem::path& path, int64_t, int64_t, const VideoOptions&) {
  require_media_libraries(path);
}

void check_png_folder(const std::filesystem::path& path) {
  require_media_libraries(path);
}

std::string read_comment(const std::filesystem::path& path) {
  require_media_libraries(path);
  return {};
}

namespace {

void require_image_libraries(const std::filesystem::path& path) {
  throw bad_file(path, "this build has no media libraries and reads only .ppm and .safetensors pictures",
                 "give it as one of these, or build with FFmpeg and OpenCV (-DSPARSEREEL_MEDIA=ON)");
}

}  // namespace

Image decode_image(const std::filesystem::path& path, ImageFormat, std::span<const std::byte>) {
  require_image_libraries(path);
  return {};
}

Image decode_last_frame(const std::filesystem::path& path, std::optional<int> /*orientation*/,
                        std::chrono::seconds /*limit*/) {
  require_image_libraries(path);
  return {};
}

MediaReport media_report() {
  return {};
}

}  // namespace sparsereel::app
