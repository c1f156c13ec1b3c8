// Reads text and refuses what is none.
#include "app/text_file.h"

#include <unistd.h>

#include <algorithm>

#include "hilbert/error.h"
#include "models/checkpoint/regular_file.h"
#include "models/text/unicode.h"

namespace sparsereel::app {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file, uint64_t most) {
  return models::read_regular_file(file, most, "name an ordinary file of less than " + models::mebibytes(most));
}

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
  return models::read_descriptor(STDIN_FILENO, name_of_input(file), most, "give it less");
}

std::string_view checked_text(std::string_view text, const std::string& file) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!models::is_utf8(line) || line.find('\0') != std::string_view::npos)
      throw bad_input(file + ":" + std::to_string(number) + ": this is not UTF-8 text", "save the file as UTF-8");
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return text;
}

bool is_blank(std::string_view text) {
  while (const size_t space = models::white_space_length(text)) text.remove_prefix(space);
  return text.empty();
}

}  // namespace sparsereel::app
