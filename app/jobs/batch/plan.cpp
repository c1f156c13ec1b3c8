// Plans each row separately: a row with an error fails, and the others continue.
#include "app/jobs/batch/plan.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "app/jobs/batch/manifest.h"
#include "app/jobs/batch/names.h"
#include "app/jobs/outputs.h"
#include "app/jobs/report.h"
#include "app/options/text_file.h"
#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "models/files/sha256.h"
#include "models/files/temporary.h"
#include "models/store/configs/model_of_files.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Runs one step of a row's planning. An Error becomes the row's failure.
void attempt(VideoTask& row, const std::function<void()>& part) {
  if (row.failure) return;
  try {
    part();
  } catch (const Error& error) {
    row.fail(error);
  }
}

/// Completes the paths of the row's files with the folders that row_file() chooses.
PromptRow with_places(PromptRow row, const BatchOptions& options) {
  for (auto& [key, value] : row.values) {
    const RowFile where = row_file(*find_option(key));
    if (where == RowFile::in_the_output) value = (options.folder / value).string();
    // An absolute path stays as it is, because operator/ keeps it.
    if (where == RowFile::from_the_set && !value.empty()) value = (options.set.parent_path() / value).string();
    if (where == RowFile::beside_the_set && !is_standard_input(value))
      value = (options.set.parent_path() / value).string();
  }
  return row;
}

void refuse_links(const PromptRow& row) {
  for (const auto& [key, value] : row.values) {
    std::error_code ignored;
    if (row_file(*find_option(key)) == RowFile::beside_the_set && fs::is_symlink(value, ignored))
      throw bad_option(key, value + " is a link, which may lead out of the prompt set's folder",
                       "replace it with the file");
  }
}

/// Merges the row's values over the settings of the set. If the row names a model, a transformer's file or a recipe,
/// the model's file in configs/ is looked for again.
void merge(Settings& settings, const PromptRow& row, const SetSettings& set, const std::string& file) {
  const std::array deciding = {"model", "random_weights", "from", "transformer", "diffusion_model"};
  const bool own = std::ranges::any_of(deciding, [&](const char* key) { return row.values.contains(key); });
  if (!own) settings = set.merged;
  settings.add(Source::row, row.values, file, row.places);
  if (own) return collect_settings(settings, set.command_line, set.config_file);
  add_profile(settings);
  settings.add_model_config(PresetUse::whole);
}

/// Returns true if the row gives a seed, or names a video to make again (--from) whose recipe has a seed.
bool has_own_seed(const PromptRow& row, const Settings& settings) {
  const Setting* seed = settings.find("seed");
  return seed != nullptr &&
         (seed->source == Source::row || (seed->source == Source::recipe && row.values.contains("from")));
}

/// If a launcher started several processes on this machine, gives the row the GPU of this process, unless the row names
/// a device.
void choose_device(VideoTask& row, const Share& share) {
  const std::string device = row.settings.text("device", "auto");
  if (!share.local_rank || (device != "auto" && device != "cuda") || !models::cuda_available()) return;
  const auto count = at::detail::getCUDAHooks().deviceCount();
  row.options.request.device = "cuda:" + std::to_string(*share.local_rank % std::max<int64_t>(count, 1));
}

VideoTask plan(const PromptRow& row, int64_t index, const SetSettings& set, const BatchOptions& options,
               const Share& share) {
  VideoTask planned;
  planned.index = index;
  planned.set = name_of_input(options.set);
  planned.place = planned.set + ":" + std::to_string(row.line);
  attempt(planned, [&] {
    merge(planned.settings, row, set, planned.set);
    if (is_standard_input(planned.settings.text("prompt_file", "")))
      throw bad_option("prompt_file", "-: a set's rows cannot share standard input",
                       "give the set itself as -, or name a file");
    if (lacks_prompt(planned.settings))
      throw bad_input("the row has no prompt", "fill in its field prompt, or give all such rows one with -p \"...\"");
    refuse_links(row);
    planned.options = read_generate_options(planned.settings);
    if (planned.options.random_seed)
      throw bad_option(
          "seed", *planned.settings.text("seed") + " is impossible here, because a resumed set needs the same seeds",
          "give a number");
    if (!has_own_seed(row, planned.settings)) planned.seed_offset = index;
    planned.options.request.seed += static_cast<uint64_t>(planned.seed_offset.value_or(row.copy));
    choose_device(planned, share);
  });
  const auto named = row.values.find("output");
  const std::string prompt = planned.failure ? "" : planned.options.request.prompt;
  planned.options.run.output = options.folder / video_name(index, prompt, "." + options.format);
  if (named != row.values.end()) planned.options.run.output = named->second;
  return planned;
}

/// Lower-cases the name: some systems treat names that differ only in case as one file.
std::string folded(const std::string& name) {
  return lower_case(name);
}

/// The files that the run reads and writes. No file may be written twice, or be both read and written.
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
      for (const fs::path& file : files_in(option.kind(), set.merged.text(option.key(), "")))
        files.reads(option_name(option.key()), file);
  const fs::path own = manifest_path(options.folder, share.rank);
  files.writes("the manifest", own);
  if (fs::is_directory(options.folder)) {
    for (const fs::path& manifest : manifests_in(options.folder))
      if (manifest != own) files.reads("another share's manifest", manifest);
  }
  files.writes("--report", set.merged.text("report", ""));
}

/// Adds the row's files from its own values, because an error may have kept these values from being merged into its
/// settings.
void add_files(FileTable& files, const PromptRow& row, const VideoTask& planned) {
  for (const auto& [key, value] : row.values) {
    const OptionSpec& option = *find_option(key);
    if (!option.written)
      for (const fs::path& file : files_in(option.kind(), value)) files.reads(planned.place + " " + key, file);
    if (option.written && key != "output") files.writes(planned.place + " " + key, value);
  }
  const fs::path& output = planned.options.run.output;
  files.writes(planned.place + " output", output);
  files.writes(planned.place + " output", recipe_beside(output));
  files.writes(planned.place + " output", sound_beside(output));
}

}  // namespace

SetPlan plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set, const BatchOptions& options,
                  const Share& share) {
  SetPlan planned;
  FileTable files;
  std::map<fs::path, Settings> of_models;  // settings of one row per model
  add_files(files, set, options, share);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const PromptRow given = with_places(rows[i], options);
    VideoTask row = plan(given, index, set, options, share);
    add_files(files, given, row);
    if (!row.failure) of_models.emplace(row.options.run.model, row.settings);
    planned.names.insert(name_of(row));
    if (index % share.size == share.rank) planned.rows.push_back(std::move(row));
  }
  for (const auto& [model, settings] : of_models) files.check_model(settings);
  return planned;
}

std::string pipeline_key(const VideoTask& row) {
  if (row.failure) return {};
  const RunOptions& run = row.options.run;
  std::error_code ignored;
  // In a folder, or beside a file, the row's images may decide which of several files the model is read from.
  const bool chooses =
      !run.random_weights && (models::is_searched(run.model) || fs::is_regular_file(run.model, ignored));
  const char* images = !chooses || !run.with_images ? "" : *run.with_images ? "with images" : "without images";
  return run.model.string() + "\n" + images + "\n" + models::pipeline_key(row.options.request);
}

std::vector<std::vector<VideoTask*>> groups_of(std::vector<VideoTask>& rows) {
  std::vector<std::string> keys;
  std::vector<std::vector<VideoTask*>> groups;
  for (VideoTask& row : rows) {
    const std::string key = pipeline_key(row);
    const auto place = static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
    if (place == keys.size()) {
      keys.push_back(key);
      groups.emplace_back();
    }
    groups[place].push_back(&row);
  }
  return groups;
}

std::string name_of(const VideoTask& row) {
  return row.options.run.output.filename().string();
}

void resolve_row(VideoTask& row, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks) {
  attempt(row, [&] {
    resolve_video(row, pipeline, loaded, ranks);
    row.identity = identity_with_seed(row, row.options.request.seed);
  });
}

std::string identity_with_seed(const VideoTask& row, uint64_t seed) {
  nlohmann::json recipe = row.recipe;
  recipe["seed"] = seed;
  std::string identity = recipe_identity(std::move(recipe), row.plan, row.options.run);
  // Files beside the video do not change the recipe, but the row is not finished without them.
  const fs::path sheet = row.options.run.contact_sheet.filename(), latents = row.options.save_latents.filename();
  if (sheet.empty() && latents.empty()) return identity;
  return models::sha256(identity + "\n" + sheet.string() + "\n" + latents.string());
}

void check_row_outputs(VideoTask& row) {
  attempt(row, [&] {
    const RunOptions& run = row.options.run;
    if (output_kind(run.output) == OutputKind::png_folder)
      throw bad_input("the output " + name_of(row) + " is a folder of PNGs",
                      "the videos of a set are files: name a .mp4, .webm, .mov, .mkv, .gif, .y4m or .safetensors");
    check_outputs(row.settings, run);
  });
}

void check_row_name(VideoTask& row) {
  attempt(row, [&] {
    check_video(row.options.run);
    if (const fs::path sound = sound_beside(row.options.run.output); row.sound.any() && !sound.empty())
      kSoundBeside.check(sound);
  });
}

void remove_leftovers(const std::vector<VideoTask>& rows) {
  std::vector<fs::path> targets;
  for (const VideoTask& row : rows)
    for (const fs::path& file : files_written(row.options)) targets.push_back(file);
  models::remove_leftovers(targets);
}

}  // namespace sparsereel::app::sets
