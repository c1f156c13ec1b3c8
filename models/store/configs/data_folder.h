// What is installed beside the program and the library.
#pragma once

#include <filesystem>

namespace sparsereel::models {

/// Where configs/ and assets/ are: in share/sparsereel of the installation that this code runs from, program or shared
/// library; beside its build folder; or in the source tree.
std::filesystem::path data_folder();

}  // namespace sparsereel::models
