// Collects the folders that errors can name, and removes them from texts.
#include "app/serve/hidden_paths.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "hilbert/read_text.h"

namespace sparsereel::app::serve {
namespace {

namespace fs = std::filesystem;

/// Returns true if a path may begin at this place of the text.
bool begins_word(const std::string& text, size_t place) {
  if (place == 0) return true;
  const auto before = static_cast<unsigned char>(text[place - 1]);
  return std::isalnum(before) == 0 && before != '/' && before != '.' && before != '_' && before != '-';
}

void erase_all(std::string& text, const std::string& root) {
  for (size_t place = text.find(root); place != std::string::npos; place = text.find(root, place))
    if (begins_word(text, place))
      text.erase(place, root.size());
    else
      ++place;
}

bool names_files(const OptionSpec& option) {
  return option.kind() == ValueKind::file || option.kind() == ValueKind::folder || option.kind() == ValueKind::loras ||
         option.key() == "model";
}

}  // namespace

HiddenPaths::HiddenPaths(const std::vector<fs::path>& paths, const Settings& settings) {
  for (const fs::path& path : paths) add(path);
  for (const OptionSpec& option : option_table())
    if (names_files(option))
      for (const std::string& path : split(settings.text(option.key(), ""), ',')) add(path);
  std::ranges::sort(roots_, [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

void HiddenPaths::add(const fs::path& path) {
  if (path.empty()) return;
  std::error_code ignored;
  for (const fs::path& each : {path, fs::absolute(path, ignored), fs::weakly_canonical(path, ignored)})
    for (const fs::path& root : {each, each.parent_path()})
      if (root.string().size() > 1) roots_.push_back(root.string() + "/");  // "/" and "." reveal nothing
}

std::string HiddenPaths::for_clients(std::string text) const {
  for (const std::string& root : roots_) erase_all(text, root);
  return text;
}

Error HiddenPaths::for_clients(const Error& error) const {
  return {error.kind(), for_clients(error.problem()), for_clients(error.remedy()), {.field = error.field()}};
}

}  // namespace sparsereel::app::serve
