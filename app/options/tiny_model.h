// The tiny model that comes with the program, what its prompts may say and its videos may measure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::app {

/// Where it is: in the source tree or the installation. It may be missing.
std::filesystem::path tiny_model();

/// Frames of a video and their pixels.
struct VideoShape {
  int64_t width = 0, height = 0, frames = 0;
};

/// That the tiny model was trained on other videos, where `model` is that one and shapes are beyond what it still
/// draws, and where they are so small that sparse attention gains nothing; empty otherwise. One warning for all shapes.
std::string unusual_shape_warning(const std::filesystem::path& model, const std::vector<VideoShape>& shapes);

/// That the tiny model knows moving shapes only, where `model` is that one and prompts have words that were not in its
/// training; empty otherwise. One warning for all prompts.
std::string unknown_words_warning(const std::filesystem::path& model, const std::vector<std::string>& prompts);

}  // namespace sparsereel::app
