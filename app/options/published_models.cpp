// Looks names up among the repositories that configs/*.yaml list.
#include "app/options/published_models.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "app/called_program.h"
#include "app/counted.h"
#include "app/jobs/report.h"
#include "app/options/choice_commands.h"
#include "app/options/nearest.h"
#include "app/options/option_table.h"
#include "hilbert/lower_case.h"
#include "hilbert/read_text.h"
#include "models/engine/components.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/configs/data_folder.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr double kGigabyte = 1e9;

/// One way to get a model: from the repository called `name`. A repository with several names has one entry per name.
struct Known {
  const models::Architecture* architecture;
  models::Published published;
  std::string name;
};

std::vector<Known> all_known(const std::vector<models::Architecture>& architectures) {
  std::vector<Known> all;
  for (const models::Architecture& architecture : architectures)
    for (const models::Published& published : architecture.published)
      for (const std::string& name : published.names) all.push_back({&architecture, published.named(name), name});
  return all;
}

/// Returns the entries of this repository. `name` may be given without the organization.
std::vector<Known> named(const std::vector<Known>& all, const std::string& name) {
  std::vector<Known> found;
  const bool has_organization = name.find('/') != std::string::npos;
  for (const Known& known : all) {
    const std::string own = has_organization ? known.name : models::name_of_repository(known.name);
    if (lower_case(own) != lower_case(name)) continue;
    const bool again = !found.empty() && !has_organization && known.name != found.front().name;
    if (!again) found.push_back(known);  // without an organization, take the first that has this name
  }
  return found;
}

/// Returns the repository whose name is closest to `name`; empty if none is close.
std::string nearly(const std::vector<Known>& all, const std::string& name) {
  const bool has_organization = name.find('/') != std::string::npos;
  std::vector<std::string> names;
  for (const Known& known : all)
    names.push_back(lower_case(has_organization ? known.name : models::name_of_repository(known.name)));
  const std::string near = nearest(lower_case(name), names);
  const auto place = std::ranges::find(names, near);
  return near.empty() || place == names.end() ? "" : all[static_cast<size_t>(place - names.begin())].name;
}

std::string size_of(const models::Published& published, const models::Architecture& architecture) {
  if (published.gigabytes) return fixed(*published.gigabytes, 1) + " GB";
  const models::Download& first = published.downloads.front();
  if (!first.files.empty() || !first.pattern.empty()) return {};
  return "at least " + fixed(bytes_in_16_bits(architecture) / kGigabyte, 1) + " GB";
}

/// Parses "-m FOLDER --vae FILE" into values by option key.
OptionValues values_in(const std::string& use) {
  OptionValues values;
  const std::vector<std::string> words = split(use, ' ');
  for (size_t i = 0; i + 1 < words.size(); i += 2)
    values.emplace_back(words[i] == "-m" ? "model" : key_of_option(words[i]), words[i + 1]);
  return values;
}

/// Returns the user's own command with the downloaded model if it is `generate` or `batch`; otherwise an example.
std::string command_to_use(const std::string& use) {
  const std::vector<std::string>& words = called_words();
  const bool makes_videos = !words.empty() && (words.front() == "generate" || words.front() == "batch");
  return makes_videos ? command_with(words, values_in(use)) : called_program() + " generate " + use + " -p \"a panda\"";
}

DownloadAdvice advice_of(const models::Published& published, const models::Architecture& architecture) {
  const std::string size = size_of(published, architecture);
  DownloadAdvice advice{.title = published.holds + (published.holds.empty() || size.empty() ? "" : ", ") + size,
                        .commands = {}};
  for (const models::Download& download : published.downloads)
    advice.commands.push_back(models::download_command(download));
  advice.commands.push_back(command_to_use(published.use));
  return advice;
}

/// Returns the lines of a remedy: one command a line, under titles if there are several models.
std::string lines_of(const std::vector<DownloadAdvice>& all) {
  std::string text;
  for (const DownloadAdvice& advice : all) {
    if (all.size() > 1) text += "\n# " + advice.title;
    for (const std::string& command : advice.commands) text += "\n" + command;
  }
  return text;
}

std::string remedy_of(const std::vector<Known>& found) {
  std::vector<DownloadAdvice> all;
  for (const Known& known : found) all.push_back(advice_of(known.published, *known.architecture));
  const std::string size = all.size() > 1 || all.front().title.empty() ? "" : " (" + all.front().title + ")";
  return (all.size() > 1 ? "download one of its models" : "download it" + size) +
         " and name the folder:" + lines_of(all);
}

/// Returns the folder in the working directory that has the repository's name; empty if there is none.
std::string folder_here(const std::string& model) {
  const std::string name = models::name_of_repository(model);
  std::error_code ignored;
  return name != model && fs::is_directory(name, ignored) ? name : "";
}

bool looks_like_a_repository(const std::string& model) {
  std::error_code ignored;
  return models::is_repository_name(model) && !fs::exists(fs::path(model).parent_path(), ignored);
}

}  // namespace

double bytes_in_16_bits(const models::Architecture& architecture) {
  const auto checkpoint = models::Checkpoint::with_random_weights(
      architecture.config.file, architecture.transformer_class, architecture.components);
  double weights = static_cast<double>(models::vae_weight_count(checkpoint));
  for (const std::string& role : checkpoint.roles())
    if (role != "vae" && models::has_weights(role)) weights += models::weight_count(checkpoint, role);
  return 2 * weights;
}

std::vector<DownloadAdvice> download_advice(const models::Architecture& architecture) {
  std::vector<DownloadAdvice> all;
  for (const models::Published& published : architecture.published) all.push_back(advice_of(published, architecture));
  return all;
}

Error missing_model(const std::string& model, const Error& error) {
  const std::vector<models::Architecture> architectures = models::architectures_in(models::data_folder() / "configs");
  const std::vector<Known> all = all_known(architectures);
  const auto with_remedy = [&](const std::string& remedy) {
    return bad_file(model, "there is no file or folder of this name here", remedy);
  };
  std::vector<Known> found = named(all, model);
  const bool exact = !found.empty();
  if (!exact)
    if (const std::string near = nearly(all, model); !near.empty()) found = named(all, near);
  const std::string here = folder_here(model);
  const bool is_model = !found.empty() || fs::exists(fs::path(here) / "model_index.json");
  if (!here.empty() && is_model)
    return with_remedy("the folder " + here + " is here: name it with -m " + shell_quoted(here));
  if (!found.empty()) return with_remedy((exact ? "" : "did you mean " + found.front().name + "? ") + remedy_of(found));
  if (!looks_like_a_repository(model)) return error;
  const std::string name = models::name_of_repository(model);
  return with_remedy("check the path, or download the model from Hugging Face first:\nhf download " + model +
                     " --local-dir " + name + "\n" + command_to_use("-m " + name));
}

}  // namespace sparsereel::app
