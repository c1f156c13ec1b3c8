// The tiny model that comes with the program, and what its prompts may say.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::app {

/// Where it is: in the source tree or the installation. It may be missing.
std::filesystem::path tiny_model();

/// That the tiny model knows moving shapes only, where `model` is that one and prompts have words that were not in its
/// training; empty otherwise. One warning for all prompts.
std::string unknown_words_warning(const std::filesystem::path& model, const std::vector<std::string>& prompts);

}  // namespace sparsereel::app
