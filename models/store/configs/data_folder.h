// Finds the data that is installed with the program and the library.
#pragma once

#include <filesystem>

namespace sparsereel::models {

/// Returns the folder that contains configs/ and assets/. It is share/sparsereel in this program's or library's
/// installation, or else the folder above the build folder, or else the source tree.
std::filesystem::path data_folder();

}  // namespace sparsereel::models
