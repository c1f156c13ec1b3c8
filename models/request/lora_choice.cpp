// Reads and writes choices of LoRAs. File names may contain the separators ',', ':' and '@'.
#include "models/request/lora_choice.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

/// Names with more commas than this are not recognized as one file.
constexpr size_t kMostCommas = 16;
constexpr size_t kMostExperts = 2;  // the most transformers that a model has

bool names_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::optional<double> parse_scale(std::string_view text) {
  double scale = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), scale);
  const bool whole = error == std::errc{} && stop == text.data() + text.size();
  return whole && fits_float(scale) ? std::optional(scale) : std::nullopt;
}

/// Cuts the last `mark` and everything behind it off `text`, and returns what was behind it. Returns nothing, and
/// leaves `text` as it is, if there is no mark, or if a character of `not_in` follows the mark: the mark is then part
/// of the file's name.
std::optional<std::string> take_end(std::string& text, char mark, const char* not_in) {
  const size_t at = text.rfind(mark);
  if (at == std::string::npos || text.find_first_of(not_in, at) != std::string::npos) return std::nullopt;
  std::string end = text.substr(at + 1);
  text.resize(at);
  return end;
}

Error refusal(const std::string& text, const std::string& problem) {
  return bad_option("lora", text + ": " + problem,
                    "write FILE, FILE:0.8, or FILE@high:0.8 for one of two transformers");
}

/// Parses the text by its ':' and '@' alone, without looking for the file.
LoraChoice parse_marks(const std::string& text) {
  LoraChoice choice;
  std::string rest = text;
  if (const auto scale = take_end(rest, ':', "/")) {
    const auto number = parse_scale(*scale);
    if (!number)
      throw refusal(text, "there is no such file, and the text after the colon is not a finite 32-bit number");
    choice.scale = *number;
  }
  choice.expert = take_end(rest, '@', "./:").value_or("");
  if (rest.empty()) throw refusal(text, "names no file");
  choice.file = rest;
  return choice;
}

/// Parses a text that ends in a scale (if `with_scale`) and has an expert before that (if `with_expert`). Returns
/// nothing if it does not have this form.
std::optional<LoraChoice> reading(std::string text, bool with_scale, bool with_expert) {
  LoraChoice choice;
  if (with_scale) {
    const auto end = take_end(text, ':', "/");
    const auto scale = end ? parse_scale(*end) : std::nullopt;
    if (!scale) return std::nullopt;
    choice.scale = *scale;
  }
  if (with_expert) {
    const auto expert = take_end(text, '@', "./:");
    if (!expert) return std::nullopt;
    choice.expert = *expert;
  }
  choice.file = text;
  return choice;
}

/// Parses a text that names an existing file, whose name may contain ':' and '@'. Returns nothing if no such file
/// exists.
std::optional<LoraChoice> parse_existing(const std::string& text) {
  for (const bool with_scale : {false, true})
    for (const bool with_expert : {false, true})
      if (auto choice = reading(text, with_scale, with_expert); choice && names_file(choice->file)) return choice;
  return std::nullopt;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
}

/// Parses the choice at `begin` and moves `begin` behind its comma. The longest text that names an existing file wins;
/// otherwise the choice ends at the next comma.
LoraChoice take_choice(const std::string& text, size_t& begin) {
  const size_t first_end = std::min(text.find(',', begin), text.size());
  std::vector<size_t> ends = {first_end};
  while (ends.back() < text.size() && ends.size() <= kMostCommas)
    ends.push_back(std::min(text.find(',', ends.back() + 1), text.size()));
  const size_t start = begin;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    begin = *end + 1;
    if (auto choice = parse_existing(trimmed(text.substr(start, *end - start)))) return *choice;
  }
  return parse_marks(trimmed(text.substr(start, first_end - start)));
}

/// Returns the LoRAs in the folder that the choice names; the choice itself if it names no folder.
std::vector<LoraChoice> in_folder(const LoraChoice& choice) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(choice.file, ignored)) return {choice};
  std::vector<LoraChoice> loras;
  for (const auto& entry : std::filesystem::directory_iterator(choice.file, ignored)) {
    if (entry.path().extension() != ".safetensors") continue;
    loras.push_back(choice);
    loras.back().file = entry.path();
  }
  if (loras.empty() || loras.size() > kMostExperts)
    throw bad_option("lora",
                     choice.file.string() + ": this folder holds " + std::to_string(loras.size()) +
                         " .safetensors files, not a LoRA or a pair of LoRAs",
                     "name the file");
  std::ranges::sort(loras, {}, &LoraChoice::file);
  return loras;
}

}  // namespace

std::vector<LoraChoice> parse_loras(const std::string& text) {
  std::vector<LoraChoice> loras;
  for (size_t begin = 0; begin < text.size();)
    std::ranges::move(in_folder(take_choice(text, begin)), std::back_inserter(loras));
  return loras;
}

std::string text_of(const std::vector<LoraChoice>& loras, bool whole_paths) {
  std::ostringstream text;
  for (const LoraChoice& lora : loras) {
    text << (text.tellp() > 0 ? "," : "");
    text << (whole_paths ? lora.file : lora.file.filename()).string();
    if (!lora.expert.empty()) text << "@" << lora.expert;
    // JSON writes the shortest text that reads back as the same number
    if (lora.scale != 1) text << ":" << nlohmann::json(lora.scale).dump();
  }
  return text.str();
}

}  // namespace sparsereel::models
