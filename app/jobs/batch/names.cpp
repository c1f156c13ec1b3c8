// Keeps ASCII letters and digits; everything else, letters of other scripts too, becomes hyphens.
#include "app/jobs/batch/names.h"

#include <algorithm>

namespace sparsereel::app::sets {

std::string slug(std::string_view prompt) {
  constexpr size_t kLongest = 48;
  std::string text;
  for (const char c : prompt) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool kept = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (kept) text += lower;
    if (!kept && !text.empty() && text.back() != '-') text += '-';
    if (text.size() >= kLongest) break;
  }
  while (!text.empty() && text.back() == '-') text.pop_back();
  return text;
}

std::string video_name(int64_t row, std::string_view prompt, std::string_view extension) {
  constexpr size_t kDigits = 4;
  std::string name = std::to_string(row);
  name.insert(0, kDigits - std::min(kDigits, name.size()), '0');
  if (const std::string words = slug(prompt); !words.empty()) name += "-" + words;
  return name.append(extension);
}

bool is_plain_name(std::string_view name) {
  constexpr size_t kLongest = 200;  // leaves room for the suffixes of temporary files and checkpoints
  constexpr std::string_view kRefused = "/\\:*?\"<>|";
  return !name.empty() && name.size() <= kLongest && name.front() != '.' && name.back() != '.' && name.back() != ' ' &&
         std::none_of(name.begin(), name.end(), [&](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || kRefused.find(c) != std::string_view::npos;
         });
}

}  // namespace sparsereel::app::sets
