// Parses the image processor's config. Missing fields take the defaults of transformers' constructor.
#include "models/image/processor_config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMaxEdge = 4096;
constexpr int64_t kBicubic = 3;  // Pillow's number for the bicubic filter

/// Throws Error if the config switches off a step, because we always do all steps. do_convert_rgb is ignored, because
/// pixels are always RGB.
void require_steps(const ConfigFields& fields) {
  for (const char* step : {"do_resize", "do_center_crop", "do_rescale", "do_normalize"})
    if (!fields.boolean(step, true)) fields.unsupported(step, "false", "true");
}

/// Reads a size in one of two forms: a number or an object. The object has the field `of_one`. If `of_one` is empty, it
/// has the fields `height` and `width` instead, which must be equal.
int64_t edge(const nlohmann::json& config, const std::string& file, const char* field, const char* of_one) {
  constexpr int64_t kEdge = 224;
  const ConfigFields fields(config, file);
  const auto found = config.find(field);
  if (found == config.end() || found->is_number()) return fields.integer(field, kEdge, 1, kMaxEdge);
  const std::string path = std::string(field) + ".";
  if (!found->is_object()) fields.fail(field, "is neither a whole number nor an object");
  for (const auto& [name, value] : found->items()) {
    const bool known = *of_one != '\0' ? name == of_one : name == "height" || name == "width";
    if (!known && !value.is_null()) fields.unsupported(path + name, "(another way to resize)", "left out");
  }
  const ConfigFields inner(*found, file);
  if (*of_one != '\0') return inner.integer(of_one, kEdge, 1, kMaxEdge);
  const int64_t height = inner.integer("height", kEdge, 1, kMaxEdge),
                width = inner.integer("width", kEdge, 1, kMaxEdge);
  if (height != width) fields.unsupported(path + "height", "other than " + path + "width", path + "width");
  return height;
}

std::array<double, 3> colors(const ConfigFields& fields, const char* field, const std::array<double, 3>& fallback,
                             double least) {
  const std::vector<double> numbers = fields.optional_numbers(field, least, 255);
  if (numbers.empty()) return fallback;
  if (numbers.size() != fallback.size())
    fields.fail(field, "has " + std::to_string(numbers.size()) + " numbers, not 3");
  return {numbers[0], numbers[1], numbers[2]};
}

}  // namespace

ImageProcessorConfig parse_image_processor_config(const nlohmann::json& json, const std::string& file) {
  constexpr double kLeastDeviation = 1e-6;
  const ConfigFields fields(json, file);
  require_steps(fields);
  fields.integer("resample", kBicubic, kBicubic, kBicubic);
  ImageProcessorConfig config;
  const int64_t shortest_edge = edge(json, file, "size", "shortest_edge");
  config.crop_size = edge(json, file, "crop_size", "");
  config.rescale_factor = fields.positive_number("rescale_factor", config.rescale_factor);
  config.image_mean = colors(fields, "image_mean", config.image_mean, 0);
  config.image_std = colors(fields, "image_std", config.image_std, kLeastDeviation);
  if (config.crop_size != shortest_edge)
    fields.unsupported("crop_size", std::to_string(config.crop_size),
                       "size.shortest_edge, " + std::to_string(shortest_edge));
  return config;
}

}  // namespace sparsereel::models
