// Plans rows; see plan.h.
#include "app/commands/batch/plan.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "app/commands/batch/names.h"
#include "app/outputs.h"
#include "app/text_file.h"
#include "hilbert/error.h"
#include "models/checkpoint/sha256.h"
#include "models/checkpoint/temporary.h"
#include "models/device.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Runs a part of a row's planning; what is wrong becomes the row's.
void attempt(Video& row, const std::function<void()>& part) {
  if (row.failure) return;
  try {
    part();
  } catch (const Error& error) {
    row.fail(error);
  }
}

/// A row's own model or recipe decides about configs anew.
void merge(Settings& settings, const PromptRow& row, const SetSettings& set, const std::string& file) {
  const bool own = row.values.contains("model") || row.values.contains("random_weights") || row.values.contains("from");
  if (!own) settings = set.merged;
  settings.add(Source::row, row.values, file, row.places);
  if (own) collect_settings(settings, set.command_line, set.config_file);
}

/// Given in the row, or by the recipe that the row renders again.
bool has_own_seed(const PromptRow& row, const Settings& settings) {
  const Setting* seed = settings.find("seed");
  return seed != nullptr &&
         (seed->source == Source::row || (seed->source == Source::recipe && row.values.contains("from")));
}

/// Processes that share a machine's GPUs take one each, unless the device is named.
void choose_device(Video& row, const Share& share) {
  const std::string device = row.settings.text("device", "auto");
  if (!share.local_rank || (device != "auto" && device != "cuda") || !models::cuda_available()) return;
  const auto count = at::detail::getCUDAHooks().deviceCount();
  row.options.run.device = "cuda:" + std::to_string(*share.local_rank % std::max<int64_t>(count, 1));
}

Video plan(const PromptRow& row, int64_t index, const SetSettings& set, const BatchOptions& options,
           const Share& share) {
  Video planned;
  planned.index = index;
  planned.set = name_of_input(options.set);
  planned.place = planned.set + ":" + std::to_string(row.line);
  attempt(planned, [&] {
    merge(planned.settings, row, set, planned.set);
    if (is_standard_input(planned.settings.text("prompt_file", "")))
      throw bad_option("prompt_file", "-: a set's rows cannot share standard input",
                       "give the set itself as -, or name a file");
    planned.options = read_generate_options(planned.settings);
    if (planned.options.random_seed)
      throw bad_option("seed", *planned.settings.text("seed") + ": a set goes on by the seeds of its videos",
                       "give a number");
    planned.options.request.seed += static_cast<uint64_t>(has_own_seed(row, planned.settings) ? row.copy : index);
    choose_device(planned, share);
  });
  const auto named = row.values.find("output");
  const std::string prompt = planned.failure ? "" : planned.options.request.prompt;
  planned.options.run.output =
      options.folder / (named != row.values.end() ? named->second : video_name(index, prompt, "." + options.format));
  return planned;
}

/// Names that differ only in case are one file on some systems.
std::string folded(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

/// What the run reads and writes: nothing is written that is read, or written twice.
class FileTable {
 public:
  void reads(const std::string& who, const fs::path& file) { add(who, file, false); }
  void writes(const std::string& who, const fs::path& file) {
    add(who, file, true);
    written_.push_back({who, file, true});
  }
  void check_model(const Settings& settings) const { check_model_is_untouched(written_, files_of_model(settings)); }

 private:
  struct Use {
    std::string who;
    bool written;
  };

  void add(const std::string& who, const fs::path& file, bool written) {
    if (file.empty()) return;
    std::error_code ignored;
    const fs::path place = fs::weakly_canonical(fs::absolute(file, ignored), ignored);
    const auto [use, added] = uses_.emplace(folded(place.string()), Use{who, written});
    if (!added && (written || use->second.written))
      throw bad_input(use->second.who + " and " + who + " are the same file: " + file.string(),
                      "give each file a name of its own");
  }

  std::map<std::string, Use> uses_;
  std::vector<NamedFile> written_;
};

void add_files(FileTable& files, const SetSettings& set, const BatchOptions& options, const Share& share) {
  if (!is_standard_input(options.set)) files.reads("the prompt set", options.set);
  files.reads("--config", set.config_file);
  for (const OptionSpec& option : option_table())
    if (!option.written)
      for (const fs::path& file : files_in(option, set.merged.text(option.key, "")))
        files.reads(option_name(option.key), file);
  const fs::path own = manifest_path(options.folder, share.rank);
  files.writes("the manifest", own);
  if (fs::is_directory(options.folder)) {
    for (const fs::path& manifest : manifests_in(options.folder))
      if (manifest != own) files.reads("another share's manifest", manifest);
  }
  files.writes("--report", set.merged.text("report", ""));
}

/// By the row's own values: what is wrong with them may have kept them from being merged.
void add_files(FileTable& files, const PromptRow& row, const Video& planned) {
  for (const auto& [key, value] : row.values) {
    const OptionSpec& option = *find_option(key);
    if (!option.written)
      for (const fs::path& file : files_in(option, value)) files.reads(planned.place + " " + key, file);
    if (option.written && key != "output") files.writes(planned.place + " " + key, value);
  }
  const fs::path& output = planned.options.run.output;
  files.writes(planned.place + " output", output);
  files.writes(planned.place + " output", recipe_beside(output));
}

}  // namespace

std::vector<Video> plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set, const BatchOptions& options,
                             const Share& share) {
  std::vector<Video> planned;
  FileTable files;
  std::map<fs::path, Settings> of_models;  // one row's of each
  add_files(files, set, options, share);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    Video row = plan(rows[i], index, set, options, share);
    add_files(files, rows[i], row);
    if (!row.failure) of_models.emplace(row.options.run.model, row.settings);
    if (index % share.size == share.rank) planned.push_back(std::move(row));
  }
  for (const auto& [model, settings] : of_models) files.check_model(settings);
  return planned;
}

std::string pipeline_key(const Video& row) {
  const RunOptions& run = row.options.run;
  if (row.failure) return {};
  return run.model.string() + "\n" + run.device + "\n" + run.dtype + "\n" + run.vae_dtype + "\n" + run.weights + "\n" +
         run.text_weights + "\n" + (run.offload ? "offload" : "") + "\n" +
         models::text_of(run.loras, /*whole_paths=*/true);
}

std::string name_of(const Video& row) {
  return row.options.run.output.filename().string();
}

void resolve_row(Video& row, const models::Pipeline& pipeline, LoadedLatents& loaded) {
  attempt(row, [&] {
    const GenerateOptions& options = row.options;
    if (output_kind(options.run.output) == OutputKind::png_folder)
      throw bad_input("the output " + name_of(row) + " is a folder of PNGs",
                      "a set's videos are files: name a .mp4, .webm, .mov, .mkv, .gif, .y4m or .safetensors");
    check_outputs(row.settings, options.run);
    resolve_video(row, pipeline, loaded);
    // Files beside the video make no other recipe, but the row is not finished without them.
    if (!options.run.contact_sheet.empty() || !options.save_latents.empty())
      row.identity = models::sha256(row.identity + "\n" + options.run.contact_sheet.string() + "\n" +
                                    options.save_latents.string());
  });
}

const ManifestEntry* find_finished(const Video& row, const std::vector<ManifestEntry>& entries) {
  const fs::path& video = row.options.run.output;
  std::error_code error;
  const uint64_t bytes = fs::file_size(video, error);
  if (error || row.identity.empty()) return nullptr;
  for (const fs::path& file : {row.options.run.contact_sheet, row.options.save_latents})
    if (!file.empty() && !fs::is_regular_file(file, error)) return nullptr;
  std::string hash;  // of the file, once it is worth reading
  const auto found = std::find_if(entries.rbegin(), entries.rend(), [&](const ManifestEntry& entry) {
    if (entry.state != "done" || entry.output != name_of(row) || entry.identity != row.identity || entry.bytes != bytes)
      return false;
    if (hash.empty()) hash = models::sha256_of_file(video);
    return entry.sha256 == hash;
  });
  return found == entries.rend() ? nullptr : &*found;
}

void remove_leftovers(const std::vector<Video>& rows) {
  std::vector<fs::path> targets;
  for (const Video& row : rows)
    for (const fs::path& file : {row.options.run.output, row.options.run.contact_sheet, row.options.save_latents})
      targets.push_back(file);
  models::remove_leftovers(targets);
}

}  // namespace sparsereel::app::sets
