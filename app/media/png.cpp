// Writes PNGs: a folder of frames, or the one image of a contact sheet.
#include "app/media/png.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <system_error>

#include "app/media/writers.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

fs::path frame_path(const fs::path& folder, int64_t index) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%06d.png", static_cast<int>(index));
  return folder / name.data();
}

/// A temporary folder beside the target folder. place() renames it to the target; otherwise the destructor removes it.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& target)
      : target_(target), temporary_(target, models::Temporary::Kind::folder) {}

  void add(int64_t index, const std::vector<uint8_t>& png) {
    const int file = open(frame_path(temporary_.path(), index).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) models::throw_write_failure(target_, errno);
    int error = models::write_all(file, png.data(), png.size());
    if (error == 0) error = models::flush_to_disk(file);
    const bool closed = close(file) == 0;
    if (error != 0 || !closed) models::throw_write_failure(target_, error != 0 ? error : errno);
  }

  void complete() const {
    if (const int error = models::flush_to_disk(temporary_.path()); error != 0)
      models::throw_write_failure(target_, error);
  }

  void place() {
    const fs::path& path = temporary_.path();
    std::error_code ignored;  // a folder without the old permissions is better than no video
    if (fs::is_directory(target_, ignored)) fs::permissions(path, fs::status(target_, ignored).permissions(), ignored);
    // rename() replaces an empty folder and refuses one with files in it.
    if (std::rename(path.c_str(), target_.c_str()) != 0) models::throw_write_failure(target_, errno);
    temporary_.keep();
    models::flush_to_disk(target_.parent_path());  // makes the rename last even if the power fails
  }

 private:
  fs::path target_;
  models::Temporary temporary_;
};

/// Returns the absolute path of the folder, without a trailing slash. Follows symbolic links.
fs::path resolve_folder(const fs::path& path) {
  fs::path folder = fs::absolute(path.has_filename() ? path : path.parent_path());
  std::error_code error;
  // Check this before calling behind_links(), which returns a path that does not exist if the folder is a link to a
  // pipe.
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    throw bad_file(path, "is a file, not a folder for PNGs", "choose another name");
  return models::behind_links(folder);
}

class FolderWriter final : public VideoWriter {
 public:
  FolderWriter(const fs::path& path, const models::VideoShape& shape)
      : folder_(resolve_folder(path)),
        encode_(png_encoder(static_cast<int>(shape.width), static_cast<int>(shape.height), path)) {}

  void add(std::span<const uint8_t> frame) override {
    const std::vector<uint8_t> png = encode_(frame);
    folder_.add(frames_++, png);
    bytes_ += png.size();
  }

  WrittenVideo complete() override {
    folder_.complete();
    return {.encoder = "png", .note = {}, .bytes = bytes_};
  }
  void place() override { folder_.place(); }

 private:
  UnfinishedFolder folder_;
  PngEncoder encode_;
  int64_t frames_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace

void write_png(const fs::path& path, int width, int height, const std::vector<uint8_t>& pixels) {
  const std::vector<uint8_t> png = png_encoder(width, height, path)(pixels);
  models::AtomicFile file(path);
  file.write(png.data(), png.size());
  file.commit();
}

void check_png_folder(const fs::path& path) {
  const fs::path target = resolve_folder(path);
  std::error_code error;
  if (target.filename().native().size() > NAME_MAX)
    throw bad_file(path, "the name of the folder is too long", "choose a shorter name");
  if (fs::is_directory(target) && !fs::is_empty(target, error))
    throw bad_file(path, "the folder for PNGs is not empty", "name a new folder, or empty it first");
  if (!fs::is_directory(target.parent_path()))
    throw bad_file(path, "the folder " + target.parent_path().string() + " does not exist", "create it first");
  if (access(target.parent_path().c_str(), W_OK | X_OK) != 0)
    throw bad_file(path, "the folder " + target.parent_path().string() + " is not writable",
                   "choose another place with -o");
}

std::unique_ptr<VideoWriter> open_png_folder(const fs::path& path, const models::VideoShape& shape) {
  check_png_folder(path);
  return std::make_unique<FolderWriter>(path, shape);
}

}  // namespace sparsereel::app
