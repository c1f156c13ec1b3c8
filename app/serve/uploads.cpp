// Checks headers of pictures and writes the files.
#include "app/serve/uploads.h"

#include <random>
#include <span>

#include "app/media/image.h"
#include "app/media/image_header.h"
#include "app/serve/body.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app::serve {
namespace {

constexpr int64_t kMostUploadPixels = 40'000'000;

/// Returns the ending for a picture's file. Throws Error if the picture cannot be used.
std::string checked_ending(const std::string& bytes, const std::string& field) {
  const auto span = std::as_bytes(std::span(bytes));
  const auto format = image_format(span);
  if (!format) throw bad_option(field, "is not a PNG, JPEG or WebP picture", "save it as one of these");
  const ImageHeader header = read_image_header(*format, span);
  if (header.animated) throw bad_option(field, "holds several pictures", "send one of them");
  if (header.height < 1 || header.width < 1) throw bad_option(field, "has no size: it is damaged", "save it again");
  if (header.height > kMostUploadPixels / header.width)
    throw bad_option(field, "has more than " + std::to_string(kMostUploadPixels / 1'000'000) + " million pixels",
                     "scale it down first: no video shows as much");
  return *format == ImageFormat::png ? ".png" : *format == ImageFormat::jpeg ? ".jpg" : ".webp";
}

}  // namespace

SavedPictures::SavedPictures(const std::filesystem::path& folder, const std::string& id,
                             const std::map<std::string, std::string>& pictures)
    : folder_(folder) {
  try {
    for (const auto& [option, bytes] : pictures) {
      const std::string name = id + "." + option + checked_ending(bytes, field_name(option));
      models::AtomicFile file(folder_ / name);
      file.write(bytes.data(), bytes.size());
      file.commit();
      names_[option] = name;
    }
  } catch (...) {
    remove();
    throw;
  }
}

SavedPictures::~SavedPictures() {
  if (!kept_) remove();
}

void SavedPictures::remove() const {
  std::error_code ignored;
  for (const auto& [option, name] : names_) std::filesystem::remove(folder_ / name, ignored);
}

std::string SavedPictures::file(const std::string& option) const {
  const auto found = names_.find(option);
  return found == names_.end() ? "" : found->second;
}

void draw_seed(std::map<std::string, std::string>& values, const Settings& settings) {
  const auto own = values.find("seed");
  const std::string asked = own == values.end() ? settings.text("seed", "") : own->second;
  if (is_random_seed(asked)) values["seed"] = std::to_string(std::random_device{}());
}

}  // namespace sparsereel::app::serve
