// Looks for the words "high" and "low" in names.
#include "models/store/checkpoint/expert_name.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "hilbert/lower_case.h"

namespace sparsereel::models {
namespace {

/// Words after "high" or "low" that show that the name describes pictures, quality or memory.
constexpr std::array<std::string_view, 20> kOtherThings = {
    "res",   "resolution", "quality", "poly",  "contrast", "light",   "key", "detail",  "detailed", "angle",
    "speed", "fidelity",   "fashion", "frame", "fps",      "fantasy", "end", "texture", "vram",     "memory"};

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

bool is_separator(char c) {
  return c == '-' || c == '_' || c == '.' || c == ' ';
}

/// Returns the letters at the start of `text`, after at most one separator.
std::string_view next_word(std::string_view text) {
  if (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
  return text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, is_letter) - text.begin()));
}

/// Returns true if the name, in lower case, shows that the file is for this expert.
bool says(std::string_view name, std::string_view expert) {
  for (size_t at = name.find(expert); at != std::string_view::npos; at = name.find(expert, at + 1)) {
    const std::string_view after = name.substr(at + expert.size()), word = next_word(after);
    if (word.starts_with("noise")) return true;
    const bool begins = at == 0 || is_separator(name[at - 1]);
    const bool ends = after.empty() || !is_letter(after.front());
    if (begins && ends && std::ranges::find(kOtherThings, word) == kOtherThings.end()) return true;
  }
  return false;
}

}  // namespace

std::string expert_in_name(std::string_view name) {
  const std::string lowered = lower_case(std::string(name));
  const bool high = says(lowered, "high"), low = says(lowered, "low");
  return high == low ? "" : high ? "high" : "low";
}

std::string expert_of_file(const std::filesystem::path& file) {
  const std::string own = expert_in_name(file.filename().string());
  return own.empty() ? expert_in_name(file.parent_path().filename().string()) : own;
}

}  // namespace sparsereel::models
