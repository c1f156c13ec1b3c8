// Removes the words "high" and "low" from names of files.
#include "models/store/checkpoint/expert_partner.h"

#include <regex>

#include "hilbert/lower_case.h"
#include "models/store/checkpoint/expert_name.h"

namespace sparsereel::models {

std::string other_expert(const std::string& expert) {
  return expert == "high" ? "low" : "high";
}

std::string name_without_expert(const std::filesystem::path& file) {
  static const std::regex kWords("(high|low)[-_. ]?noise|(^|[-_. ])(high|low)(?![a-z])"), kSeparators("[-_. ]+");
  std::string name = lower_case(file.filename().string());
  if (!expert_in_name(name).empty()) name = std::regex_replace(name, kWords, "-");
  return std::regex_replace(name, kSeparators, "-");
}

}  // namespace sparsereel::models
