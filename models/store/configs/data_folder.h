// Finds the data that is installed with the program and the library.
#pragma once

#include <filesystem>

namespace sparsereel::models {

/// Returns the folder of configs/ and assets/: share/sparsereel of this program's or library's installation, the folder
/// above its build folder, or the source tree.
std::filesystem::path data_folder();

}  // namespace sparsereel::models
