// The pictures that a video begins and ends with, from their files to the model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/options/settings.h"
#include "models/engine/pipeline.h"
#include "models/request/fields.h"
#include "models/request/run.h"

namespace sparsereel::app {

/// The files of images. Each is decoded and hashed once, but for pictures beyond what all may take together, which are
/// decoded again for their use.
class PictureFiles {
 public:
  explicit PictureFiles(uint64_t most_bytes = uint64_t{512} << 20) : most_bytes_(most_bytes) {}

  /// These throw Error naming the file.
  std::shared_ptr<const models::Picture> picture(const std::string& file);
  models::PixelSize size(const std::string& file);
  const std::string& sha256(const std::string& file);

 private:
  struct Known {
    models::PixelSize size;
    std::string sha256;
    std::shared_ptr<const models::Picture> picture;  // null: not decoded yet, or there is no room for it
  };

  std::map<std::string, Known> known_;
  uint64_t most_bytes_, bytes_ = 0;
};

/// Gives a request those of the images that the model needs which it lacks, made up.
void make_up_images(const models::ModelSpec& spec, models::Request& request);

/// Reads the request's images, so that what is no picture is found before any work, and lets the video have the first
/// one's shape where nobody asks for a size. Random weights that need an image get one that is made up. Throws Error
/// naming the file.
void settle_images(const Settings& settings, const models::ModelSpec& spec, models::Request& request,
                   PictureFiles& pictures);

/// Encodes the plan's images, where it has any; the rest as Pipeline::add_images(). Throws Error naming the file.
void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline,
                PictureFiles& pictures, std::vector<std::string>* warnings = nullptr, const models::Run& run = {});

/// What pictures say of videos, each encoded once: of videos that begin and end alike, in one size.
class ImageEncodings {
 public:
  struct Encoded {
    models::Conditioning conditioning;  // without a text, on the CPU
    std::vector<std::string> warnings;
  };

  bool has(const models::Plan& plan) const { return encoded_.contains(models::image_key(plan)); }
  /// Encodes what is not there yet. Throws as add_images().
  const Encoded& of(const models::Plan& plan, const models::Pipeline& pipeline, PictureFiles& pictures,
                    const models::Run& run = {});
  uint64_t nbytes() const;

 private:
  std::map<std::string, Encoded> encoded_;
};

/// "in the shape of picture.jpg", to follow the size of a video whose size is nobody's choice; else empty.
std::string shape_note(const models::Plan& plan);

}  // namespace sparsereel::app
