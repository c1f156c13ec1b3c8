// Reads a file, or standard input if its name is "-".
#include "app/options/text_file.h"

#include <unistd.h>

namespace sparsereel::app {

namespace fs = std::filesystem;

bool is_standard_input(const fs::path& file) {
  return file == "-";
}

std::string name_of_input(const fs::path& file) {
  return is_standard_input(file) ? "standard input" : file.string();
}

std::string read_input(const fs::path& file, uint64_t most) {
  if (!is_standard_input(file))
    return models::read_regular_file(
        file, most, "name an ordinary file of less than " + models::mebibytes(most) + ", or - for standard input");
  return models::read_descriptor(STDIN_FILENO, name_of_input(file), most, "give less text");
}

}  // namespace sparsereel::app
