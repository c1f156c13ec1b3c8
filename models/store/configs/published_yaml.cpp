// Parses and checks the entries of `published`.
#include "models/store/configs/published_yaml.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/config_fields.h"
#include "models/store/configs/nearest.h"
#include "models/store/configs/yaml_text.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

void check_map(const YAML::Node& node, const fs::path& file, const std::vector<std::string>& keys) {
  const std::string remedy = "give " + list_of(keys);
  if (!node.IsMap()) throw bad_yaml(file, node.Mark(), "published has an entry that is not a map", remedy);
  for (const auto& entry : node)
    if (std::ranges::find(keys, entry.first.Scalar()) == keys.end())
      throw bad_yaml(file, entry.first.Mark(), "the key published." + entry.first.Scalar() + " is unknown",
                     did_you_mean(entry.first.Scalar(), keys, remedy));
}

/// Returns the texts under a key, which holds one text or a list of texts; empty if there is no such key.
std::vector<std::string> texts(const YAML::Node& node, const fs::path& file, const char* key) {
  const YAML::Node value = node[key];
  if (!value) return {};
  std::vector<std::string> all;
  if (value.IsScalar()) all.push_back(value.Scalar());
  if (value.IsMap())
    throw bad_yaml(file, value.Mark(), std::string(key) + " is a map", "write a text, or a list of them");
  for (const auto& item : value) {
    if (!item.IsScalar())
      throw bad_yaml(file, value.Mark(), std::string(key) + " is not a list of texts", "write a list of texts");
    all.push_back(item.Scalar());
  }
  return all;
}

std::string text(const YAML::Node& node, const fs::path& file, const char* key) {
  const std::vector<std::string> all = texts(node, file, key);
  if (all.size() > 1)
    throw bad_yaml(file, node[key].Mark(), std::string(key) + " is not one text", "write a single text");
  return all.empty() ? "" : all.front();
}

Download parse_download(const YAML::Node& node, const fs::path& file) {
  Download download = {.repository = text(node, file, "repository"),
                       .files = texts(node, file, "files"),
                       .pattern = text(node, file, "pattern"),
                       .folder = text(node, file, "folder")};
  if (!is_repository_name(download.repository))
    throw bad_yaml(file, node.Mark(), "published.repository is missing, or not ORGANIZATION/NAME",
                   "write it as Hugging Face does");
  return download;
}

std::optional<double> parse_gigabytes(const YAML::Node& node, const fs::path& file) {
  const std::string value = text(node, file, "gigabytes");
  if (value.empty()) return std::nullopt;
  const std::optional<double> number = parse_number<double>(value);
  if (!number || !(*number > 0))
    throw bad_yaml(file, node["gigabytes"].Mark(), "gigabytes is not a positive number",
                   "write a number, or leave it out");
  return number;
}

}  // namespace

std::vector<Published> parse_published(const YAML::Node& node, const fs::path& file) {
  if (!node.IsSequence())
    throw bad_yaml(file, node.Mark(), "published is not a list", "write lines of the form '- {repository: ORG/NAME}'");
  std::vector<Published> all;
  for (const auto& entry : node) {
    check_map(entry, file, {"repository", "names", "holds", "files", "pattern", "folder", "gigabytes", "with", "use"});
    Published published;
    published.downloads = {parse_download(entry, file)};
    const std::string own = published.downloads.front().repository;
    published.names = {own};
    for (const std::string& name : texts(entry, file, "names")) published.names.push_back(name);
    published.holds = text(entry, file, "holds");
    published.gigabytes = parse_gigabytes(entry, file);
    published.use = text(entry, file, "use");
    if (published.use.empty()) published.use = "-m " + name_of_repository(own);
    if (entry["with"] && !entry["with"].IsSequence())
      throw bad_yaml(file, entry["with"].Mark(), "with is not a list", "write '[{repository: ORG/NAME}]'");
    for (const auto& more : entry["with"]) {
      check_map(more, file, {"repository", "files", "pattern", "folder"});
      published.downloads.push_back(parse_download(more, file));
      Download& last = published.downloads.back();
      if (last.folder.empty()) last.folder = name_of_repository(own);
    }
    all.push_back(std::move(published));
  }
  return all;
}

}  // namespace sparsereel::models
