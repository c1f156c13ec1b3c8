// Names of repositories and commands that download them.
#include "models/store/configs/published.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace sparsereel::models {
namespace {

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

bool is_word(std::string_view word) {
  return !word.empty() && word.front() != '.' && word.front() != '-' && std::ranges::all_of(word, is_plain);
}

}  // namespace

Published Published::named(const std::string& name) const {
  Published other = *this;
  const std::string own = names.front();
  for (Download& download : other.downloads)
    if (download.repository == own) download.repository = name;
  return other;
}

std::string name_of_repository(const std::string& repository) {
  return repository.substr(repository.find('/') + 1);
}

bool is_repository_name(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || !is_word(text.substr(0, slash)) || !is_word(text.substr(slash + 1))) return false;
  for (const char* ending : {".safetensors", ".gguf", ".pth", ".pt", ".bin", ".ckpt", ".json", ".yaml"})
    if (text.ends_with(ending)) return false;
  return true;
}

std::string download_command(const Download& download) {
  std::string files;
  for (const std::string& file : download.files) files += " " + file;
  if (!download.pattern.empty()) files += std::string(" --include '") + download.pattern + "'";  // of hf download
  const std::string folder = download.folder.empty() ? name_of_repository(download.repository) : download.folder;
  return "hf download " + download.repository + files + " --local-dir " + folder;
}

}  // namespace sparsereel::models
