#include "models/video/lora_choice.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

LoraChoice parse_lora(const std::string& text) {
  const auto refuse = [&](const std::string& problem) {
    return bad_option("lora", text + ": " + problem, "write FILE, FILE:0.8, or FILE@high:0.8 for one of two experts");
  };
  LoraChoice choice;
  std::string rest = text;
  const size_t colon = rest.rfind(':');
  if (colon != std::string::npos && rest.find('/', colon) == std::string::npos) {
    const char* end = rest.data() + rest.size();
    const auto [stop, error] = std::from_chars(rest.data() + colon + 1, end, choice.scale);
    if (error != std::errc{} || stop != end || !fits_float(choice.scale))
      throw refuse("what follows the colon is no finite number that a float holds");
    rest.resize(colon);
  }
  const size_t at = rest.rfind('@');
  if (at != std::string::npos && rest.find_first_of("./", at) == std::string::npos) {
    choice.expert = rest.substr(at + 1);
    rest.resize(at);
  }
  if (rest.empty()) throw refuse("names no file");
  choice.file = rest;
  return choice;
}

}  // namespace

std::vector<LoraChoice> parse_loras(const std::string& text) {
  std::vector<LoraChoice> loras;
  std::istringstream pieces(text);
  for (std::string piece; std::getline(pieces, piece, ',');) {
    const size_t begin = piece.find_first_not_of(" \t"), end = piece.find_last_not_of(" \t");
    loras.push_back(parse_lora(begin == std::string::npos ? "" : piece.substr(begin, end + 1 - begin)));
  }
  return loras;
}

std::string text_of(const std::vector<LoraChoice>& loras, bool whole_paths) {
  std::ostringstream text;
  for (const LoraChoice& lora : loras) {
    text << (text.tellp() > 0 ? "," : "");
    text << (whole_paths ? lora.file : lora.file.filename()).string();
    if (!lora.expert.empty()) text << "@" << lora.expert;
    if (lora.scale != 1) text << ":" << nlohmann::json(lora.scale).dump();  // the shortest that reads back alike
  }
  return text.str();
}

}  // namespace sparsereel::models
