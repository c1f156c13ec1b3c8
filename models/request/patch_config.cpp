// Parses the config, and rounds sizes as Python does.
#include "models/request/patch_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "hilbert/error.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kBicubicFilter = 3;  // Pillow's number for the bicubic filter

std::array<double, 3> colors_of(const ConfigFields& fields, const char* field, const std::array<double, 3>& fallback,
                                double least) {
  const std::vector<double> numbers = fields.optional_numbers(field, least, 255);
  if (numbers.empty()) return fallback;
  if (numbers.size() != fallback.size())
    fields.fail(field, "has " + std::to_string(numbers.size()) + " numbers, not 3");
  return {numbers[0], numbers[1], numbers[2]};
}

/// Returns the multiple of `unit` that is nearest to `size`. Of two equally near multiples, returns the one whose
/// factor is even.
int64_t nearest_multiple(int64_t size, int64_t unit) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(size) / static_cast<double>(unit))) * unit;
}

}  // namespace

PatchConfig parse_patch_config(const nlohmann::json& json, const std::string& file) {
  constexpr int64_t kMostPixels = int64_t{1} << 32,
                    kMostLeast = int64_t{1} << 26;  // limits how far a small picture is enlarged
  constexpr double kLeastDeviation = 1e-6;
  const ConfigFields fields(json, file);
  // The image processors of all models of Qwen-VL cut pictures alike. Their classes differ in suffixes such as "Fast".
  if (const auto type = json.find("image_processor_type"); type != json.end() && !type->is_null()) {
    if (!type->is_string() || !type->get_ref<const std::string&>().starts_with("Qwen"))
      fields.unsupported("image_processor_type", type->dump(), "Qwen2VLImageProcessor");
  }
  for (const char* step : {"do_resize", "do_rescale", "do_normalize"})
    if (!fields.boolean(step, true)) fields.unsupported(step, "false", "true");
  fields.integer("resample", kBicubicFilter, kBicubicFilter, kBicubicFilter);
  PatchConfig config;
  config.file = file;
  config.patch_size = fields.integer("patch_size", config.patch_size, 1, 256);
  config.merge_size = fields.integer("merge_size", config.merge_size, 1, 16);
  config.temporal_patch_size = fields.integer("temporal_patch_size", config.temporal_patch_size, 1, 16);
  if (const auto size = json.find("size"); size != json.end() && !size->is_null()) {
    if (!size->is_object()) fields.fail("size", "is not an object with shortest_edge and longest_edge");
    const std::string place = file + ": size";
    const ConfigFields pixels(*size, place);
    config.least_pixels = pixels.integer("shortest_edge", config.least_pixels, 1, kMostLeast);
    config.most_pixels = pixels.integer("longest_edge", config.most_pixels, 1, kMostPixels);
  }
  // Qwen2-VL's files give the bounds in the next two fields, which override `size`.
  config.least_pixels = fields.optional_integer("min_pixels", 1, kMostLeast).value_or(config.least_pixels);
  config.most_pixels = fields.optional_integer("max_pixels", 1, kMostPixels).value_or(config.most_pixels);
  if (config.most_pixels < config.least_pixels)
    fields.fail("size", "allows at most " + std::to_string(config.most_pixels) + " pixels, but at least " +
                            std::to_string(config.least_pixels));
  config.rescale_factor = fields.positive_number("rescale_factor", config.rescale_factor);
  config.image_mean = colors_of(fields, "image_mean", config.image_mean, 0);
  config.image_std = colors_of(fields, "image_std", config.image_std, kLeastDeviation);
  return config;
}

bool is_too_narrow(int64_t height, int64_t width) {
  const int64_t shorter = std::min(height, width), longer = std::max(height, width);
  return shorter < 1 || (longer - 1) / kMostPictureRatio >= shorter;
}

PatchSizes patched_size(int64_t height, int64_t width, const PatchConfig& config) {
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  if (is_too_narrow(height, width))
    throw bad_option("image",
                     "of " + std::to_string(width) + "x" + std::to_string(height) +
                         " is too narrow for the model's text encoder, which looks at it",
                     "crop it to a shape of at most " + std::to_string(kMostPictureRatio) + " to 1");
  const int64_t unit = config.patch_size * config.merge_size;
  const auto units = static_cast<double>(unit);
  PatchSizes size = {.height = nearest_multiple(height, unit), .width = nearest_multiple(width, unit)};
  if (size.height * size.width > config.most_pixels) {
    const double scale = std::sqrt(h * w / static_cast<double>(config.most_pixels));
    const auto shrunk = [&](double edge) {
      return std::max(unit, static_cast<int64_t>(std::floor(edge / scale / units)) * unit);
    };
    size = {.height = shrunk(h), .width = shrunk(w)};
  } else if (size.height * size.width < config.least_pixels) {
    const double scale = std::sqrt(static_cast<double>(config.least_pixels) / (h * w));
    const auto grown = [&](double edge) { return static_cast<int64_t>(std::ceil(edge * scale / units)) * unit; };
    size = {.height = grown(h), .width = grown(w)};
  }
  return size;
}

int64_t picture_tokens(int64_t height, int64_t width, const PatchConfig& config) {
  const PatchSizes size = patched_size(height, width, config);
  const int64_t edge = config.patch_size * config.merge_size;
  return size.height / edge * (size.width / edge);
}

}  // namespace sparsereel::models
