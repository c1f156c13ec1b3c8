// Describes the choice of files in words.
#include "app/jobs/used_files.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <set>
#include <string>

#include "app/terminal.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTransformer = "transformer";

std::string short_name(const fs::path& file, const fs::path& model) {
  const fs::path below = file.lexically_relative(model);
  return below.empty() || below == "." || *below.begin() == ".." ? file.string() : below.string();
}

/// Returns the plural of a role in words: "text encoders".
std::string several(std::string role) {
  if (role == "vae") return "VAEs";
  std::ranges::replace(role, '_', ' ');
  return role + "s";
}

std::string explained(const models::ChosenFile& file, const fs::path& model) {
  const std::string name = short_name(file.path, model), option = option_name(file.role);
  if (file.is_partner) return name + " (its partner; " + option + " names another)";
  if (file.found == 1) return name;
  const std::string what = file.role == kTransformer ? "models or formats" : several(file.role);
  return name + " (" + std::to_string(file.found) + " " + what + " were found; " + option + " names another)";
}

}  // namespace

std::string used_files_line(const std::vector<models::ChosenFile>& files, const fs::path& model) {
  const auto was_chosen = [](const models::ChosenFile& file) { return file.found > 1 || file.is_partner; };
  if (std::ranges::none_of(files, was_chosen)) return {};
  std::string line;
  for (const models::ChosenFile& file : files) {
    const bool is_transformer = file.role.starts_with(kTransformer);
    if (!is_transformer && !was_chosen(file)) continue;
    line += (line.empty() ? "Uses " : is_transformer ? " and " : "; ") + explained(file, model);
  }
  return line;
}

models::Checkpoint open_and_say(const RunOptions& run) {
  models::Checkpoint checkpoint = open_model(run);
  const std::string line = run.quiet ? "" : used_files_line(checkpoint.choices(), run.model);
  if (!line.empty()) std::cerr << one_line(line) << "\n";
  return checkpoint;
}

void say_terms(const RunOptions& run, const models::ModelSpec& spec) {
  static std::mutex mutex;
  // The models whose terms were printed. A set may open a model several times, but the terms are printed once.
  static std::set<std::string> said;
  if (run.quiet || run.random_weights || spec.license.empty()) return;
  const std::string line = models::terms_line(spec);
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) std::cerr << line << "\n";
}

}  // namespace sparsereel::app
