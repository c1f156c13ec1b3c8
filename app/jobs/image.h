// Reads the first and the last picture of a video, and encodes them for the model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/options/option_table.h"
#include "models/engine/pipeline.h"
#include "models/request/fields.h"
#include "models/request/run.h"

namespace sparsereel::app {

/// The image files of a run. Each file is hashed once. Decoded pictures are cached up to `most_bytes` in total;
/// pictures beyond this limit are decoded again at each use.
class PictureFiles {
 public:
  explicit PictureFiles(uint64_t most_bytes = uint64_t{512} << 20) : most_bytes_(most_bytes) {}

  /// The functions below throw Error naming the file. picture() returns the decoded image.
  std::shared_ptr<const models::Picture> picture(const std::string& file);
  models::PixelSize size(const std::string& file);
  const std::string& sha256(const std::string& file);

 private:
  struct Known {
    models::PixelSize size;
    std::string sha256;
    std::shared_ptr<const models::Picture> picture;  // null if not decoded yet, or not cached because of the limit
  };

  std::map<std::string, Known> known_;
  uint64_t most_bytes_, bytes_ = 0;
};

/// Puts made-up images into the request in place of images that the model needs and the request lacks.
void make_up_images(const models::ModelSpec& spec, models::Request& request);

/// Reads the request's images, so that invalid files are found before any work. If no option gives a size, the video
/// takes the shape of the first given image. If a model with random weights needs an image that is missing, the request
/// gets a made-up image. Throws Error naming the file.
void settle_images(const Settings& settings, const models::ModelSpec& spec, models::Request& request,
                   PictureFiles& pictures);

/// Throws Error if the last image is too narrow to be cropped to the plan's size.
void check_image_shapes(const models::Plan& plan, const models::ModelSpec& spec, PictureFiles& pictures);

/// Encodes the plan's images, if any, and adds them to `conditioning` as Pipeline::add_images() does. Throws Error
/// naming the file.
void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline,
                PictureFiles& pictures, std::vector<std::string>* warnings = nullptr, const models::Run& run = {});

/// The encodings of pictures. Videos share an encoding if their size, number of frames, pictures and resize rule are
/// the same.
class ImageEncodings {
 public:
  struct Encoded {
    models::Conditioning conditioning;  // without text, on the CPU
    std::vector<std::string> warnings;
  };

  bool has(const models::Plan& plan) const { return encoded_.contains(models::image_key(plan)); }
  /// Returns the encoding, made on first use. Throws like add_images().
  const Encoded& of(const models::Plan& plan, const models::Pipeline& pipeline, PictureFiles& pictures,
                    const models::Run& run = {});
  uint64_t nbytes() const;

 private:
  std::map<std::string, Encoded> encoded_;
};

/// Returns "in the shape of picture.jpg" if the image decided the video's size, or else an empty string.
std::string shape_note(const models::Plan& plan);

}  // namespace sparsereel::app
