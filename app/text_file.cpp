// Reads text and refuses what is none; see text_file.h.
#include "app/text_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "hilbert/error.h"
#include "models/text/unicode.h"

namespace sparsereel::app {

namespace fs = std::filesystem;

std::string read_text(const fs::path& file) {
  if (!fs::exists(file)) throw bad_input(file.string() + ": no such file", "check the path");
  std::ifstream stream(file, std::ios::binary);
  if (!stream || fs::is_directory(file))
    throw bad_input(file.string() + ": this cannot be read", "name a file that you may read");
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
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

}  // namespace sparsereel::app
