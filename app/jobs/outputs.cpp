// Checks a run's files and keeps its latents.
#include "app/jobs/outputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <utility>
#include <vector>

#include "app/jobs/latents.h"
#include "app/jobs/preview.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeptKind = "latents";

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path path_beside(const fs::path& output, const BesideKind& kind, int64_t number) {
  return output.string() + "." + kind.name + (number > 1 ? "-" + std::to_string(number) : "") + kind.ending;
}

/// Splits the name of a file beside an output, such as "clip.mp4.latents-2.safetensors", into the output's name and the
/// number. Returns nothing if the name is not of this kind.
std::optional<FileBeside> file_beside(const fs::path& path, const BesideKind& kind) {
  std::string name = path.filename().string();
  if (!name.ends_with(kind.ending)) return std::nullopt;
  name.resize(name.size() - kind.ending.size());
  const size_t end = name.rfind("." + kind.name);
  if (end == std::string::npos || end == 0) return std::nullopt;
  FileBeside file{.path = path, .output = fs::path(path).replace_filename(name.substr(0, end))};
  if (const std::string text = name.substr(end + 1 + kind.name.size()); text.starts_with('-'))
    std::from_chars(text.data() + 1, text.data() + text.size(), file.number);
  if (path_beside(file.output, kind, file.number) != path) return std::nullopt;
  return file;
}

/// Returns the path without a trailing slash, with links followed as far as they lead.
fs::path resolved(const fs::path& path) {
  std::error_code ignored;
  const fs::path target = models::behind_links(without_slash(path));
  const fs::path file = fs::weakly_canonical(target, ignored);
  return file.empty() ? path : file;
}

std::vector<NamedFile> files_of(const Settings& settings, const fs::path& config, const fs::path& decoded) {
  const fs::path output = settings.text("output", kDefaultOutput);
  std::vector<NamedFile> files = files_of(decoded.empty() ? Command::generate : Command::decode, settings);
  files.push_back({"the recipe of the video", recipe_beside(output), true});  // --no-metadata removes an older recipe
  files.push_back({"the sound of the video", sound_beside(output), true});
  if (const auto from = settings.text("from"); from && decoded.empty())
    files.push_back({"the recipe of --from", recipe_beside(*from)});
  files.push_back({"--config", config});
  files.push_back({"the latents to decode", decoded});
  return files;
}

/// Checks that no file of the model would be written, then removes what killed runs left.
void check_rest(const std::vector<NamedFile>& files, const Settings& settings) {
  check_model_is_untouched(files, files_of_model(settings));
  std::vector<fs::path> paths;
  for (const NamedFile& file : files)
    if (file.written) paths.push_back(file.path);
  models::remove_leftovers(paths);
}

}  // namespace

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return resolved(a) == resolved(b) || (fs::equivalent(a, b, error) && !error);
}

std::vector<NamedFile> files_of(Command command, const Settings& settings) {
  std::vector<NamedFile> files;
  for (const OptionSpec& option : option_table())
    if (takes(command, option))
      for (const fs::path& file : files_in(option.kind(), settings.text(option.key(), "")))
        files.push_back({option_name(option.key()), file, option.written});
  return files;
}

namespace {

/// Returns true for the two images of a video, which may be the same picture.
bool are_both_ends(const NamedFile& one, const NamedFile& other) {
  const auto is_picture = [](const NamedFile& file) {
    return file.option == "--image" || file.option == "--last-image";
  };
  return is_picture(one) && is_picture(other);
}

}  // namespace

void check_distinct(const std::vector<NamedFile>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool both = !files[i].path.empty() && !files[j].path.empty() && files[i].option != files[j].option;
      if (both && !are_both_ends(files[i], files[j]) && same_file(files[i].path, files[j].path))
        throw Error(ErrorKind::bad_input,
                    files[j].option + " and " + files[i].option + " are the same file: " + files[i].path.string(),
                    "give each file a name of its own", {.file = files[i].path.string()});
    }
  }
}

models::ModelFiles files_of_model(const Settings& settings) {
  // With --random-weights there are no files of weights, and the YAML is checked with the files of the other options.
  if (settings.has("random_weights")) return {};
  return models::ModelFiles(open_model(settings));
}

void check_model_is_untouched(const std::vector<NamedFile>& files, const models::ModelFiles& model) {
  for (const NamedFile& file : files)
    if (file.written && model.touched_by(file.path))
      throw Error(ErrorKind::bad_input,
                  file.option + " " + file.path.string() + " is among the files from which the model is read",
                  "choose another name or folder", {.file = file.path.string()});
}

void check_files(const std::vector<NamedFile>& files, const Settings& settings) {
  check_distinct(files);
  check_rest(files, settings);
}

namespace {

/// Returns the files of all videos. Throws Error if two files of one video are the same.
std::vector<NamedFile> distinct_files(const std::vector<Settings>& videos, const fs::path& config,
                                      const fs::path& decoded) {
  std::vector<NamedFile> all;
  for (const Settings& video : videos) {
    const std::vector<NamedFile> files = files_of(video, config, decoded);
    check_distinct(files);
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

}  // namespace

void check_distinct(const std::vector<Settings>& videos, const fs::path& config) {
  check_model_is_untouched(distinct_files(videos, config, {}), files_of_model(videos.front()));
}

void check_files(const std::vector<Settings>& videos, const fs::path& config, const fs::path& decoded) {
  check_rest(distinct_files(videos, config, decoded), videos.front());
}

void check_video(const RunOptions& run) {
  VideoOptions video = run.video;
  video.recipe = run.metadata ? "{}" : "";
  check_output(run.output, video);
}

void check_outputs(const Settings& settings, const RunOptions& run, const fs::path& decoded) {
  check_video(run);
  if (!run.contact_sheet.empty()) check_contact_sheet(run.contact_sheet);
  if (!decoded.empty()) return;
  if (!run.preview.empty()) check_preview(run.preview);
  const fs::path latents = settings.text("save_latents", latents_beside(run.output).string());
  if (output_kind(run.output) == OutputKind::png_folder && same_file(fs::absolute(latents).parent_path(), run.output))
    throw bad_option("save_latents", latents.string() + " is in the folder of the PNGs, which must be empty",
                     "save the latents elsewhere");
  const models::AtomicFile probe(latents);
}

std::vector<FileBeside> files_beside_outputs(const fs::path& folder, const BesideKind& kind) {
  std::vector<FileBeside> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored))
    if (auto file = file_beside(folder / entry.path().filename(), kind)) files.push_back(*std::move(file));
  std::ranges::sort(files, {}, [](const FileBeside& file) { return std::tie(file.output, file.number); });
  return files;
}

std::vector<fs::path> files_beside(const fs::path& output, const BesideKind& kind) {
  std::vector<fs::path> files;
  const fs::path name = without_slash(output);
  for (FileBeside& file : files_beside_outputs(name.parent_path(), kind))
    if (file.output == name) files.push_back(std::move(file.path));
  return files;
}

fs::path free_beside(const fs::path& output, const BesideKind& kind) {
  fs::path path;
  std::error_code ignored;  // a name that is too long is reported later, by the writer
  for (int64_t number = 1; number == 1 || fs::exists(fs::symlink_status(path, ignored)); ++number)
    path = path_beside(without_slash(output), kind, number);
  return path;
}

fs::path latents_beside(const fs::path& output) {
  return free_beside(output, {kKeptKind});
}

KeptLatents::KeptLatents(fs::path asked, fs::path output) : asked_(std::move(asked)), output_(std::move(output)) {}

std::string KeptLatents::save(const models::Latents& latents, const std::string& recipe) {
  for (const fs::path& file : files_beside(output_, {kKeptKind})) {
    const bool asked_for_it = !asked_.empty() && same_file(asked_, file);  // the user's own file is no leftover
    if (!asked_for_it && earlier_.empty() && are_kept_in(file, latents)) earlier_ = file;
  }
  const fs::path path = !asked_.empty() ? asked_ : !earlier_.empty() ? earlier_ : latents_beside(output_);
  try {
    using enum LatentsPurpose;
    if (path != earlier_) save_latents(path, latents, recipe, asked_.empty() ? until_the_video_is_written : asked_for);
  } catch (const Error& error) {
    if (!asked_.empty()) failure_ = error;
    return (asked_.empty() ? "the latents are not kept until the video is written: " : "--save-latents: ") +
           std::string(error.what());
  }
  saved_ = path;
  return {};
}

void KeptLatents::check() const {
  if (failure_)
    throw Error(failure_->kind(), output_.string() + " exists, but " + failure_->what(), failure_->remedy());
}

void KeptLatents::let_go() {
  std::error_code ignored;
  if (asked_.empty() && !saved_.empty()) fs::remove(std::exchange(saved_, {}), ignored);
  if (!earlier_.empty()) fs::remove(earlier_, ignored);
}

}  // namespace sparsereel::app
