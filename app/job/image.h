// The pictures that a video begins and ends with, from their files to the model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/options/settings.h"
#include "models/engine/pipeline.h"
#include "models/video/fields.h"

namespace sparsereel::app {

/// Sizes of the files that were read: videos that begin with the same one share it.
using ImageSizes = std::map<std::string, models::PixelSize>;

/// Gives a request without images those that the model needs, made up.
void make_up_images(const models::ModelSpec& spec, models::Request& request);

/// Reads the request's images, so that what is no picture is found before any work, and lets the video have the first
/// one's shape where nobody asks for a size. Random weights that need an image get one that is made up. Throws Error
/// naming the file.
void settle_images(const Settings& settings, const models::ModelSpec& spec, models::Request& request,
                   ImageSizes& known);

/// Reads and encodes the plan's images, where it has any; the rest as Pipeline::add_images(). Throws Error naming the
/// file.
void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline,
                std::vector<std::string>* warnings = nullptr, const models::Run& run = {});

/// What pictures say of videos, each encoded once: of videos that begin and end alike, in one size.
class ImageEncodings {
 public:
  struct Encoded {
    models::Conditioning conditioning;  // without a text, on the CPU
    std::vector<std::string> warnings;
  };

  bool has(const models::Plan& plan) const { return encoded_.contains(models::image_key(plan)); }
  /// Encodes what is not there yet. Throws as add_images().
  const Encoded& of(const models::Plan& plan, const models::Pipeline& pipeline, const models::Run& run = {});
  uint64_t nbytes() const;

 private:
  std::map<std::string, Encoded> encoded_;
};

/// "in the shape of picture.jpg", to follow the size of a video whose size is nobody's choice; else empty.
std::string shape_note(const models::Plan& plan);

}  // namespace sparsereel::app
