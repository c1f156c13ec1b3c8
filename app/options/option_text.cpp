// Packs the texts of an option, separated by a character that no text holds.
#include "app/options/option_text.h"

#include <array>
#include <sstream>

namespace sparsereel::app {
namespace {

constexpr char kSeparator = '\x1f';

}  // namespace

std::string single_spaced(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

std::string packed(const OptionText& text) {
  return text.help + kSeparator + single_spaced(text.manual) + kSeparator + text.example + kSeparator +
         static_cast<char>('0' + static_cast<int>(text.in_help));
}

OptionText unpacked(const std::string& description) {
  std::array<std::string, 4> parts;
  std::istringstream stream(description);
  for (std::string& part : parts) std::getline(stream, part, kSeparator);
  const InHelp in_help = parts[3].empty() ? InHelp::everywhere : static_cast<InHelp>(parts[3].front() - '0');
  return {.help = parts[0], .manual = parts[1], .example = parts[2], .in_help = in_help};
}

}  // namespace sparsereel::app
