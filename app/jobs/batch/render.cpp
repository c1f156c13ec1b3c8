// Renders groups of rows that share a pipeline, one job per group, and writes a manifest line for each video.
#include "app/jobs/batch/render.h"

#include <algorithm>
#include <utility>

#include "app/clock.h"
#include "app/jobs/report.h"
#include "models/engine/denoising.h"
#include "models/files/sha256.h"
#include "models/request/attention_run.h"
#include "models/request/outcome.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Returns true if the row itself gives an option that determines its pipeline, such as a model or a device.
bool names_pipeline(const VideoTask& row) {
  const auto is_named = [&](const std::string& key) {
    const Setting* setting = row.settings.find(key);
    return setting != nullptr && setting->source == Source::row;
  };
  return is_named("from") || is_named("model") || is_named("random_weights") ||
         std::ranges::any_of(models::fields(), [&](const models::Field& field) {
           return field.decides == models::RunPart::pipeline && is_named(field.name);
         });
}

}  // namespace

Renderer::Renderer(ManifestWriter& manifest, Progress& progress, Tally& tally, std::function<bool()> cancelled,
                   std::function<void()> check_machine, std::function<World*()> world)
    : manifest_(manifest),
      progress_(progress),
      tally_(tally),
      check_machine_(std::move(check_machine)),
      job_(*this, std::move(cancelled),
           {.keep_loaded = true,
            .write_behind = true,
            .go_on_after_failure = true,
            .keep_last = true,
            .world = std::move(world),
            .texts = {.bytes = uint64_t{512} << 20, .seconds = 2}}) {}

void Renderer::begin(const VideoTask& /*row*/) {
  const int64_t writing = job_.writes() ? 1 : 0;
  const auto here = tally_.rendered + writing + static_cast<int64_t>(tally_.failed.size());
  progress_.set("set", tally_.skipped + here, tally_.share, here, seconds_since(*start_));
}

void Renderer::warn(const VideoTask& row, const std::string& warning) {
  tally_.warnings.push_back(row.place + ": " + warning);
}

void Renderer::done(const VideoTask& /*row*/) {
  ++tally_.rendered;
  for (const auto& [stage, seconds] : seconds_) tally_.seconds[stage] += seconds;
}

void Renderer::render(std::span<VideoTask* const> rows, models::Pipeline& pipeline) {
  try {
    make(rows, pipeline);
  } catch (...) {
    job_.collect();
    throw;
  }
  job_.collect();
}

/// Makes the rows in rounds. A round encodes its texts while the last video of the round before is being written.
void Renderer::make(std::span<VideoTask* const> rows, models::Pipeline& pipeline) {
  while (!rows.empty()) {
    size_t count = 0;
    if (!prepare(rows, [&] { count = job_.load(rows, pipeline); })) return;
    const auto loaded = rows.first(count);
    rows = rows.subspan(count);
    for (const VideoTask* row : loaded) tally_.seconds["text"] += row->text_cost.load + row->text_cost.encode;
    const auto start = std::chrono::steady_clock::now();
    if (!start_) start_ = start;
    job_.run(loaded, pipeline);
    if (rows.empty()) job_.collect();
    tally_.seconds["render"] += seconds_since(start);
  }
}

bool Renderer::prepare(std::span<VideoTask* const> rows, const std::function<void()>& part) {
  if (!names_pipeline(*rows.front())) {
    part();
    return true;
  }
  const auto error = failure_of_part(part);
  if (!error) return true;
  for (VideoTask* row : rows) {
    if (row->failure) continue;  // encoding its text or image has already failed
    row->fail(*error);
    failed(*row);
  }
  return false;
}

/// Writes the row's line of the manifest.
void Renderer::written(const VideoTask& row, const Made& made) {
  made.latents.check();
  nlohmann::json entry = line(row, "done");
  entry["sha256"] = models::sha256_of_file(row.options.run.output);
  entry["bytes"] = fs::file_size(row.options.run.output);
  const models::StageSeconds& seconds = made.result.seconds;
  seconds_ = {{"denoise", seconds.denoise}, {"decode", seconds.decode}, {"write", seconds_since(made.write_start)}};
  if (seconds.decode_sound > 0) seconds_["decode_sound"] = seconds.decode_sound;
  entry.update(made_report(row, made, row.told));
  entry["seconds"] = seconds_;
  entry["sparsity"] = made.result.attention.statistics.sparsity();
  entry["encoder"] = made.file.encoder;
  if (made.file.sound.any()) {
    entry["sound"] = sound_report(made.file.sound);
    entry["sound"].erase("path");  // the path follows from the video's name, which may change
    if (const fs::path& file = made.file.sound.file; !file.empty())
      entry["sound"].update({{"sha256", models::sha256_of_file(file)}, {"bytes", fs::file_size(file)}});
  }
  manifest_.append(entry);
  tally_.presets.add(row, models::computed_steps(made.result.attention));
}

void Renderer::failed(const VideoTask& row) {
  if (check_machine_) check_machine_();
  job_.collect();  // the manifest has one writer at a time
  tally_.failed.push_back(&row);
  nlohmann::json entry = line(row, "failed");
  entry["cause"] = row.failure->what();
  entry["remedy"] = row.failure->remedy();
  manifest_.append(entry);
}

void Renderer::skip(const VideoTask& row, const ManifestEntry& finished, const std::vector<ManifestEntry>& entries) {
  ++tally_.skipped;
  const auto last = std::find_if(entries.rbegin(), entries.rend(),
                                 [&](const ManifestEntry& entry) { return entry.row == row.index; });
  if (last != entries.rend() && &*last == &finished && finished.rows <= tally_.rows) return;
  manifest_.append(line(row, finished));
}

void Renderer::move(const MovedVideo& moved) {
  VideoTask& row = *moved.row;
  check_row_name(row);
  if (row.failure) return failed(row);
  const fs::path &to = row.options.run.output, from = fs::path(to).replace_filename(moved.finished->output);
  // Rename the video last: if this run is killed before that, the next run still finds the video under its old name.
  manifest_.append(line(row, *moved.finished));
  const nlohmann::json& made = moved.finished->line;
  write_recipe(recipe_beside(to), row.options.run.metadata ? dump(made.value("recipe", row.recipe)) : "");
  const fs::path sound = made.contains("sound") ? sound_beside(from) : fs::path();
  std::error_code error;
  kSoundBeside.remove(sound_beside(to));  // the sound of an older video with this name
  if (!sound.empty()) fs::copy_file(sound, sound_beside(to), error);
  if (error) models::throw_write_failure(sound_beside(to), error.value());
  fs::rename(from, to, error);
  if (error) models::throw_write_failure(to, error.value());
  kSoundBeside.remove(sound);
  write_recipe(recipe_beside(from), "");
  ++tally_.skipped;
  ++tally_.moved;
}

nlohmann::json Renderer::line(const VideoTask& row, const char* state) const {
  nlohmann::json entry = {{"row", row.index},
                          {"rows", tally_.rows},
                          {"place", row.place},
                          {"output", name_of(row)},
                          {"state", state},
                          {"identity", row.identity},
                          {"seed", row.options.request.seed},
                          {"finished", utc_now()},
                          {"version", SPARSEREEL_VERSION}};
  if (row.seed_offset) entry["seed_offset"] = *row.seed_offset;
  return entry;
}

/// Returns the line `finished` with the present row and time. What the line says about the video stays.
nlohmann::json Renderer::line(const VideoTask& row, const ManifestEntry& finished) const {
  nlohmann::json entry = finished.line, now = line(row, "done");
  now["version"] = finished.line.value("version", "");
  entry.update(now);
  return entry;
}

}  // namespace sparsereel::app::sets
