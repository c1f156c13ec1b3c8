// Bytes -> 0..1.
#include "app/job/image.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <utility>

#include "app/media/image.h"

namespace sparsereel::app {
namespace {

at::Tensor pixels_of(const std::string& file, const models::Plan& plan, uint64_t seed) {
  if (file == models::kMadeUpImage) return models::make_up_image(plan.height, plan.width, seed);
  const Image image = read_image(file);
  return models::image_of(image.pixels.data(), image.height, image.width);
}

/// The model's own size is nobody's choice.
bool asks_for_size(const Settings& settings) {
  const auto asks = [&](const char* key) {
    const Setting* setting = settings.find(key);
    return setting != nullptr && setting->source != Source::matched_config;
  };
  return asks("width") || asks("height");
}

models::PixelSize size_of(const std::string& file, ImageSizes& known) {
  const auto found = known.find(file);
  if (found != known.end()) return found->second;
  const Image image = read_image(file);
  return known[file] = {.height = image.height, .width = image.width};
}

}  // namespace

void make_up_images(const models::ModelSpec& spec, models::Request& request) {
  if (!request.image.empty() || !request.last_image.empty()) return;
  if (spec.image.needed) request.image = models::kMadeUpImage;
  if (spec.image.needs_last) request.last_image = models::kMadeUpImage;
}

void settle_images(const Settings& settings, const models::ModelSpec& spec, models::Request& request,
                   ImageSizes& known) {
  if (!spec.image.any()) return;  // resolve() refuses them
  if (settings.has("random_weights")) make_up_images(spec, request);
  for (const std::string& file : {request.image, request.last_image})
    if (!file.empty() && file != models::kMadeUpImage) size_of(file, known);
  const bool from_file = !request.image.empty() && request.image != models::kMadeUpImage;
  if (from_file && !asks_for_size(settings)) request.image_size = size_of(request.image, known);
}

void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline,
                std::vector<std::string>* warnings, const models::Run& run) {
  if (plan.image.empty()) return;
  models::Images images = {.first = pixels_of(plan.image, plan, 0)};
  if (!plan.last_image.empty()) images.last = pixels_of(plan.last_image, plan, 1);
  pipeline.add_images(conditioning, plan, images, warnings, run);
}

const ImageEncodings::Encoded& ImageEncodings::of(const models::Plan& plan, const models::Pipeline& pipeline,
                                                  const models::Run& run) {
  const std::string key = models::image_key(plan);
  const auto found = encoded_.find(key);
  if (found != encoded_.end()) return found->second;
  Encoded encoded;
  add_images(encoded.conditioning, plan, pipeline, &encoded.warnings, run);
  encoded.conditioning = encoded.conditioning.to(at::kCPU);
  return encoded_[key] = std::move(encoded);
}

uint64_t ImageEncodings::nbytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, encoded] : encoded_) bytes += encoded.conditioning.nbytes();
  return bytes;
}

std::string shape_note(const models::Plan& plan) {
  return plan.image_size ? "in the shape of " + std::filesystem::path(plan.image).filename().string() : "";
}

}  // namespace sparsereel::app
