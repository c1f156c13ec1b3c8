// Finds the tiny model that comes with the program, and warns about prompts and sizes on which it was not trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::app {

/// Returns the folder of the tiny model in the source tree or the installation. The folder may be missing.
std::filesystem::path tiny_model();

/// Width and height in pixels, and the number of frames.
struct VideoShape {
  int64_t width = 0, height = 0, frames = 0;
};

/// If `model` is the tiny model, warns about shapes that it cannot draw well because it was not trained on them. Also
/// warns if a video is too small for sparse attention to gain. Returns one warning for all shapes, or an empty string.
std::string unusual_shape_warning(const std::filesystem::path& model, const std::vector<VideoShape>& shapes);

/// If `model` is the tiny model, warns about words that were not in its training: it knows only moving shapes. Returns
/// one warning for all prompts, or an empty string.
std::string unknown_words_warning(const std::filesystem::path& model, const std::vector<std::string>& prompts);

}  // namespace sparsereel::app
