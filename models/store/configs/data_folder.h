// Finds the data that is installed with the program and the library.
#pragma once

#include <filesystem>

namespace sparsereel::models {

/// Returns the folder that contains configs/ and assets/. This is share/sparsereel of the installation that this
/// program or library is in, the folder above its build folder, or the source tree.
std::filesystem::path data_folder();

}  // namespace sparsereel::models
