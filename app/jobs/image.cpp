// Reads pictures from their files, or makes them up.
#include "app/jobs/image.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <utility>

#include "app/media/image.h"
#include "models/files/sha256.h"
#include "models/image/images.h"
#include "models/image/keyframes.h"
#include "models/image/resample.h"
#include "models/request/run.h"

namespace sparsereel::app {
namespace {

/// Returns true if the user asks for a size. The default size of the model does not count.
bool asks_for_size(const Settings& settings) {
  const auto asks = [&](const char* key) {
    const Setting* setting = settings.find(key);
    return setting != nullptr && setting->source != Source::matched_config;
  };
  return asks("width") || asks("height");
}

}  // namespace

std::shared_ptr<const models::Picture> PictureFiles::picture(const std::string& file) {
  Known& known = known_[file];
  if (known.picture) return known.picture;
  auto picture = std::make_shared<const models::Picture>(read_image(file));
  known.size = {.height = picture->height, .width = picture->width};
  if (bytes_ + picture->pixels.size() > most_bytes_) return picture;
  bytes_ += picture->pixels.size();
  return known.picture = std::move(picture);
}

models::PixelSize PictureFiles::size(const std::string& file) {
  Known& known = known_[file];
  if (known.size == models::PixelSize{}) picture(file);
  return known.size;
}

const std::string& PictureFiles::sha256(const std::string& file) {
  Known& known = known_[file];
  if (known.sha256.empty()) known.sha256 = models::sha256_of_file(file);
  return known.sha256;
}

void make_up_images(const models::ModelSpec& spec, models::Request& request) {
  if (spec.image.needed && request.image.empty()) request.image = models::kMadeUpImage;
  if (spec.image.needs_last && request.last_image.empty()) request.last_image = models::kMadeUpImage;
}

void settle_images(const Settings& settings, const models::ModelSpec& spec, models::Request& request,
                   PictureFiles& pictures) {
  if (!spec.image.any()) return;  // the model takes no images, and resolve() refuses them
  if (settings.has("random_weights")) make_up_images(spec, request);
  for (const std::string& file : {request.image, request.last_image})
    if (!file.empty() && file != models::kMadeUpImage) pictures.size(file);
  const std::string& first_given = request.image.empty() ? request.last_image : request.image;
  const bool from_file = !first_given.empty() && first_given != models::kMadeUpImage;
  if (from_file && !asks_for_size(settings)) request.image_size = pictures.size(first_given);
}

void check_image_shapes(const models::Plan& plan, const models::ModelSpec& spec, PictureFiles& pictures) {
  const bool covers = spec.image.has_own_fit() && !plan.image.empty() && !plan.last_image.empty();
  if (!covers || plan.last_image == models::kMadeUpImage) return;
  const models::PixelSize size = pictures.size(plan.last_image);
  models::check_covers(size.height, size.width, plan.height, plan.width, plan.last_image);
}

void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline,
                PictureFiles& pictures, std::vector<std::string>* warnings, const models::Run& run) {
  if (!plan.has_images()) return;
  const auto picture = [&](const std::string& file, uint64_t seed) {
    if (file != models::kMadeUpImage) return pictures.picture(file);
    return std::make_shared<const models::Picture>(models::make_up_image(plan.height, plan.width, seed));
  };
  models::Images images;
  if (!plan.image.empty()) images.first = picture(plan.image, 0);
  if (!plan.last_image.empty()) images.last = picture(plan.last_image, 1);
  pipeline.add_images(conditioning, plan, images, warnings, run);
}

const ImageEncodings::Encoded& ImageEncodings::of(const models::Plan& plan, const models::Pipeline& pipeline,
                                                  PictureFiles& pictures, const models::Run& run) {
  const std::string key = models::image_key(plan);
  const auto found = encoded_.find(key);
  if (found != encoded_.end()) return found->second;
  Encoded encoded;
  add_images(encoded.conditioning, plan, pipeline, pictures, &encoded.warnings, run);
  encoded.conditioning = encoded.conditioning.to(at::kCPU);
  return encoded_[key] = std::move(encoded);
}

uint64_t ImageEncodings::nbytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, encoded] : encoded_) bytes += encoded.conditioning.nbytes();
  return bytes;
}

std::string shape_note(const models::Plan& plan) {
  return plan.image_size ? "in the shape of " + std::filesystem::path(plan.first_given()).filename().string() : "";
}

}  // namespace sparsereel::app
