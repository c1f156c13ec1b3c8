// Sorts a folder's files by the models that can use them, and prints the list.
#include "app/commands/inspect_folder.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/counted.h"
#include "app/options/choice_commands.h"
#include "app/terminal.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/configs/data_folder.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using models::Candidate;
using Paths = std::vector<fs::path>;

constexpr const char* kTokenizer = "tokenizer";
constexpr size_t kNamed = 10;  // at most this many files are listed by name; the others are only counted

std::string below(const fs::path& file, const fs::path& folder) {
  const fs::path name = file.lexically_relative(folder);
  return one_line((name.empty() ? file : name).string());
}

/// Returns the command that runs a model. If the folder holds several models, the command names each file of this
/// model, because -m alone would not say which model is meant.
std::string command_for(const FolderInventory& inventory, const Candidate& model) {
  std::vector<std::string> words = {"generate", "-p", "a panda", "-m", inventory.folder.string()};
  if (model.images.needed) words.insert(words.end(), {"--image", "picture.jpg"});
  if (model.images.needs_last) words.insert(words.end(), {"--last-image", "last.jpg"});
  const bool is_only = inventory.only_model() == &model && model.tokenizers.empty();
  return command_with(words, is_only ? OptionValues() : models::values_of(model));
}

bool can_run(const Candidate& model) {
  return model.is_complete() && !model.lacks_tokenizer;
}

/// Returns a text for each missing role, with the name of the file that is published for it, if there is one.
std::vector<std::string> missing_parts(const Candidate& model) {
  std::vector<std::string> roles = model.missing, texts;
  if (model.lacks_tokenizer) roles.emplace_back(kTokenizer);
  for (const std::string& role : roles) {
    const std::string& published = model.known->family->part(role).published;
    texts.push_back("no " + role + (published.empty() ? "" : ": " + published));
  }
  return texts;
}

void print_part(const FolderInventory& inventory, const Candidate& model, const std::string& role) {
  const models::FoundPart& part = model.parts.at(role);
  std::cout << "    " << role << ": " << below(part.file, inventory.folder) << ", " << part.format.name << ", "
            << models::in_gigabytes(part.bytes);
  if (const auto all = model.fitting.find(role); all != model.fitting.end()) {
    std::string others;
    for (const fs::path& file : all->second)
      if (file != part.file) others += (others.empty() ? "" : ", ") + below(file, inventory.folder);
    if (!others.empty()) std::cout << " (or " << others << ")";
  }
  std::cout << "\n";
}

void print_model(const FolderInventory& inventory, const Candidate& model) {
  std::cout << "  " << model.format << ", " << models::in_gigabytes(model.bytes) << "\n";
  if (model.known == nullptr) std::cout << "    folder: " << below(model.pipeline, inventory.folder) << "\n";
  for (const std::string& role : model.roles()) print_part(inventory, model, role);
  if (!model.tokenizer.empty())
    std::cout << "    " << kTokenizer << ": " << below(model.tokenizer, inventory.folder) << "\n";
  for (const std::string& text : missing_parts(model)) std::cout << "    " << text << "\n";
  if (can_run(model)) std::cout << "    " << one_line(command_for(inventory, model)) << "\n";
}

/// Returns the file's name, and the name of its model if this program does not run that model.
std::string named_file(const fs::path& file, const fs::path& folder) {
  const std::string model = models::foreign_model(file);
  return below(file, folder) + (model.empty() ? "" : " (" + model + ")");
}

void print_files(const Paths& files, const fs::path& folder, const std::string& what) {
  if (files.empty()) return;
  std::cout << counted(std::ssize(files), what) << ": ";
  for (size_t i = 0; i < std::min(files.size(), kNamed); ++i)
    std::cout << (i == 0 ? "" : ", ") << named_file(files[i], folder);
  std::cout << (files.size() > kNamed ? ", ...\n" : "\n");
}

void print_other_files(const FolderInventory& inventory) {
  print_files(inventory.found.loras, inventory.folder, "LoRA");
  print_files(inventory.found.others, inventory.folder, "other file");
  for (const std::string& cause : inventory.found.unread) std::cout << "not read: " << one_line(cause) << "\n";
  if (!inventory.found.whole) std::cout << "the folder is too large, and not all of it was searched\n";
}

nlohmann::json names_of(const Paths& files) {
  nlohmann::json names = nlohmann::json::array();
  for (const fs::path& file : files) names.push_back(file.string());
  return names;
}

nlohmann::json model_report(const FolderInventory& inventory, const Candidate& model) {
  nlohmann::json parts = nlohmann::json::object();
  for (const auto& [role, part] : model.parts) {
    parts[role] = {{"path", part.file.string()}, {"bytes", part.bytes}, {"format", part.format.name}};
    if (const auto all = model.fitting.find(role); all != model.fitting.end())
      parts[role]["fitting"] = names_of(all->second);
  }
  nlohmann::json report = {{"model", model.model},
                           {"format", model.format},
                           {"bytes", model.bytes},
                           {"parts", std::move(parts)},
                           {"missing", model.missing}};
  if (model.lacks_tokenizer) report["missing"].push_back(kTokenizer);
  if (!model.pipeline.empty()) report["folder"] = model.pipeline.string();
  if (!model.tokenizer.empty()) report[kTokenizer] = model.tokenizer.string();
  if (can_run(model)) report["command"] = command_for(inventory, model);
  return report;
}

}  // namespace

bool FolderInventory::is_empty() const {
  return models.empty() && found.parts.empty() && found.loras.empty() && found.others.empty();
}

const Candidate* FolderInventory::only_model() const {
  const bool is_clear = models.size() == 1 && models.front().is_complete() && models.front().tokenizers.size() <= 1;
  return is_clear ? &models.front() : nullptr;
}

FolderInventory take_inventory(const fs::path& folder) {
  models::Offered offered{.found = models::find_parts(folder)};
  std::vector<Candidate> models = models::candidates_of(offered, models::data_folder() / "configs");
  std::ranges::stable_sort(models, {}, &Candidate::model);
  return {.folder = folder, .found = std::move(offered.found), .models = std::move(models)};
}

void print_inventory(const FolderInventory& inventory) {
  const auto whole = std::ranges::count_if(inventory.models, can_run);
  std::cout << one_line(inventory.folder.string()) << ": "
            << (inventory.models.empty() ? "no model that this program runs"
                                         : counted(whole, "way") + " to run a model")
            << "\n";
  const std::string* name = nullptr;
  for (const Candidate& model : inventory.models) {
    if (name == nullptr || *name != model.model) std::cout << one_line(model.model) << "\n";
    name = &model.model;
    print_model(inventory, model);
  }
  print_other_files(inventory);
}

void print_rest_of_inventory(const FolderInventory& inventory) {
  if (const Candidate* model = inventory.only_model(); model != nullptr && can_run(*model))
    std::cout << "  run it: " << one_line(command_for(inventory, *model)) << "\n";
  print_other_files(inventory);
}

nlohmann::json inventory_report(const FolderInventory& inventory) {
  nlohmann::json models = nlohmann::json::array();
  for (const Candidate& model : inventory.models) models.push_back(model_report(inventory, model));
  return {{"path", inventory.folder.string()},        {"models", std::move(models)},
          {"loras", names_of(inventory.found.loras)}, {"other_files", names_of(inventory.found.others)},
          {"unread", inventory.found.unread},         {"whole", inventory.found.whole}};
}

}  // namespace sparsereel::app
