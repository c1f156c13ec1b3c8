// The loop over a share's videos; see render.h.
#include "app/commands/batch/render.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>

#include "app/clock.h"
#include "app/commands/finish_video.h"
#include "app/denoising_checkpoint.h"
#include "app/file_hash.h"
#include "app/interrupt.h"
#include "app/report.h"
#include "hilbert/error.h"
#include "models/checkpoint/atomic_file.h"
#include "models/failure.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;

/// Runs a part of these rows' rendering; nothing where it fails, and the rows then have the cause. What would fail for
/// every row is thrown on.
template <typename Part>
auto attempt(const std::vector<PlannedRow*>& rows, const Part& part) -> std::optional<decltype(part())> {
  try {
    return part();
  } catch (const models::Cancelled&) {
    throw;
  } catch (const models::DiskError&) {
    throw;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    for (PlannedRow* row : rows)
      if (row->cause.empty()) row->fail(error);
  }
  return std::nullopt;
}

/// Whether the row itself names what only one pipeline at a time can serve; else it is the command's choice.
bool names_pipeline(const PlannedRow& row) {
  constexpr std::array<const char*, 5> kKeys = {"model", "random_weights", "device", "dtype", "offload"};
  return std::any_of(kKeys.begin(), kKeys.end(), [&](const char* key) {
    const Setting* setting = row.settings.find(key);
    return setting != nullptr && setting->source == Source::row;
  });
}

/// What encode_text() gives for a row.
struct EncodedText {
  at::Tensor embeddings;  // on the CPU
  std::vector<std::string> warnings;
};

/// A row that fails after its denoising has not lost it.
void name_latents(PlannedRow& row, const KeptLatents& kept) {
  if (!kept.saved().empty()) row.remedy += "; its latents are in " + kept.saved().string();
}

EncodedText encode_text(const PlannedRow& row, models::Pipeline& pipeline) {
  EncodedText text;
  text.embeddings = pipeline.encode_text(row.options.request, row.resolved, &text.warnings).to(at::kCPU);
  return text;
}

}  // namespace

Renderer::Renderer(ManifestWriter& manifest, Progress& progress, Tally& tally)
    : manifest_(manifest), progress_(progress), tally_(tally) {}

void Renderer::render(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline) {
  if (rows.empty()) return;
  try {
    if (!prepare(rows, [&] { load(rows, pipeline); })) return;
    start_ = std::chrono::steady_clock::now();
    for (PlannedRow* row : rows) {
      show_progress();
      if (row->cause.empty())
        render_row(*row, pipeline);
      else
        fail(*row);
    }
    collect();
    tally_.seconds["render"] += seconds_since(start_);
  } catch (const models::Cancelled&) {
    collect();  // throws where it was not the user who stopped the run, but a video that could not be written
    throw;
  }
}

bool Renderer::prepare(const std::vector<PlannedRow*>& rows, const std::function<void()>& part) {
  if (!names_pipeline(*rows.front())) {
    part();
    return true;
  }
  const auto prepared = attempt(rows, [&] {
    part();
    return true;
  });
  if (prepared) return true;
  for (const PlannedRow* row : rows) fail(*row);
  return false;
}

void Renderer::load(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline) {
  pipeline.check_weights();
  encode(rows, pipeline);
  progress_.stage("load");
  pipeline.load_transformer();
  pipeline.load_vae();
}

/// The same texts are encoded once; each of their rows has the warnings.
void Renderer::encode(const std::vector<PlannedRow*>& rows, models::Pipeline& pipeline) {
  const auto start = std::chrono::steady_clock::now();
  progress_.stage("text");
  if (!pipeline.streams_text_encoder()) pipeline.load_text_encoder();
  using Key = std::tuple<std::string, std::string, int64_t, bool>;
  std::map<Key, EncodedText> texts;
  int64_t done = 0;
  for (PlannedRow* row : rows) {
    if (interrupted()) throw models::Cancelled{};
    const models::GenerateRequest& request = row->options.request;
    attempt({row}, [&] {
      EncodedText& text = texts[{request.prompt, request.negative_prompt, row->resolved.max_sequence_length,
                                 row->resolved.guidance_scale > 1}];
      if (!text.embeddings.defined()) text = encode_text(*row, pipeline);
      row->text = text.embeddings;
      row->warnings.insert(row->warnings.end(), text.warnings.begin(), text.warnings.end());
      return true;
    });
    progress_.step(++done, static_cast<int64_t>(rows.size()), 0);
  }
  pipeline.release_text_encoder();
  tally_.seconds["text"] += seconds_since(start);
}

models::GenerateObserver Renderer::observe(const PlannedRow& row) {
  models::GenerateObserver observer = app::observe(progress_, row.resolved.num_inference_steps);
  observer.cancelled = [this] { return interrupted() || write_failed_; };
  keep_checkpoints(observer, checkpoint_beside(row.options.run.output), row.identity, row.options.checkpoint_every, {},
                   [this, &row](const std::string& warning) { tally_.warnings.push_back(row.place + ": " + warning); });
  return observer;
}

models::GenerateResult Renderer::generate(PlannedRow& row, models::Pipeline& pipeline, KeptLatents& kept) {
  const GenerateOptions& options = row.options;
  models::GenerateRequest request = options.request;
  request.text = row.text;
  request.keep_transformer = true;
  std::string other;  // the checkpoint of a row that has changed since is of no use
  request.resume = load_checkpoint(checkpoint_beside(options.run.output), row.identity, other);
  if (request.resume) row.resumed_at_step = request.resume->step;
  models::GenerateObserver observer = observe(row);
  observer.latents = [&](const models::GenerateResult& denoised) {
    add_outcome(row.recipe, denoised);
    const std::string warning = kept.save(denoised.latents, dump(row.recipe));
    if (!warning.empty()) row.warnings.push_back(warning);
  };
  models::GenerateResult result = pipeline.generate(request, row.resolved, observer);
  add_outcome(row.recipe, result);
  return result;
}

void Renderer::render_row(PlannedRow& row, models::Pipeline& pipeline) {
  const auto kept = std::make_shared<KeptLatents>(row.options.save_latents, row.options.run.output);
  const auto result = attempt({&row}, [&] { return generate(row, pipeline, *kept); });
  row.text.reset();
  if (!result) {
    name_latents(row, *kept);
    return fail(row);
  }
  collect();
  written_ = std::async(std::launch::async, [this, &row, result = *result, kept] {
    try {
      return write(row, result, *kept);
    } catch (...) {
      write_failed_ = true;  // stops the video that is being denoised; collect() throws what happened
      throw;
    }
  });
}

Renderer::Written Renderer::write(PlannedRow& row, const models::GenerateResult& result, KeptLatents& kept) {
  const c10::InferenceMode guard;
  Written written{.row = &row, .seconds = {}, .warnings = row.warnings};
  const auto entry = attempt({&row}, [&] { return write_files(row, result, kept, written); });
  if (!entry) {
    name_latents(row, kept);
    return written;
  }
  manifest_.append(*entry);
  std::error_code ignored;
  fs::remove(checkpoint_beside(row.options.run.output), ignored);
  for (std::string& warning : written.warnings) warning.insert(0, row.place + ": ");
  return written;
}

/// Returns the row's line of the manifest.
nlohmann::json Renderer::write_files(const PlannedRow& row, const models::GenerateResult& result, KeptLatents& kept,
                                     Written& written) const {
  const auto start = std::chrono::steady_clock::now();
  const RunOptions& run = row.options.run;
  const WrittenVideo video = write_outputs(run, result.frames, dump(row.recipe), row.options.request.prompt);
  written.warnings.insert(written.warnings.end(), result.warnings.begin(), result.warnings.end());
  if (!video.note.empty()) written.warnings.push_back(video.note);
  if (const std::string wrong = defect_warning(result.frames, kept); !wrong.empty()) written.warnings.push_back(wrong);
  kept.check();
  nlohmann::json entry = line(row, "done");
  entry["sha256"] = sha256_of_file(run.output);
  entry["bytes"] = fs::file_size(run.output);
  written.seconds = {
      {"denoise", result.seconds.denoise}, {"decode", result.seconds.decode}, {"write", seconds_since(start)}};
  entry["recipe"] = row.recipe;
  entry["seconds"] = written.seconds;
  entry["sparsity"] = result.attention.statistics.sparsity();
  entry["encoder"] = video.encoder;
  entry["warnings"] = row.told;
  for (const std::string& warning : written.warnings) entry["warnings"].push_back(warning);
  if (row.resumed_at_step > 0) entry["resumed_at_step"] = row.resumed_at_step;
  return entry;
}

/// Waits for the video that is being written.
void Renderer::collect() {
  if (!written_.valid()) return;
  const Written written = written_.get();
  if (!written.row->cause.empty()) return fail(*written.row);
  ++tally_.rendered;
  for (const auto& [stage, seconds] : written.seconds) tally_.seconds[stage] += seconds;
  tally_.warnings.insert(tally_.warnings.end(), written.warnings.begin(), written.warnings.end());
}

void Renderer::fail(const PlannedRow& row) {
  collect();  // the manifest has one writer at a time
  tally_.failed.push_back(&row);
  nlohmann::json entry = line(row, "failed");
  entry["cause"] = row.cause;
  entry["remedy"] = row.remedy;
  manifest_.append(entry);
}

void Renderer::skip(const PlannedRow& row, const ManifestEntry& finished, const std::vector<ManifestEntry>& entries) {
  ++tally_.skipped;
  std::error_code ignored;
  fs::remove(checkpoint_beside(row.options.run.output), ignored);  // of a run that was killed right after the line
  const auto last = std::find_if(entries.rbegin(), entries.rend(),
                                 [&](const ManifestEntry& entry) { return entry.row == row.index; });
  if (last != entries.rend() && &*last == &finished && finished.rows <= tally_.rows) return;
  nlohmann::json entry = finished.line;
  entry.update({{"row", row.index}, {"rows", tally_.rows}, {"place", row.place}, {"finished", utc_now()}});
  manifest_.append(entry);
}

nlohmann::json Renderer::line(const PlannedRow& row, const char* state) const {
  return {{"row", row.index},
          {"rows", tally_.rows},
          {"place", row.place},
          {"output", row.output},
          {"state", state},
          {"identity", row.identity},
          {"seed", row.options.request.seed},
          {"finished", utc_now()},
          {"version", SPARSEREEL_VERSION}};
}

void Renderer::show_progress() {
  const int64_t writing = written_.valid() ? 1 : 0;
  const auto here = tally_.rendered + writing + static_cast<int64_t>(tally_.failed.size());
  progress_.set("set", tally_.skipped + here, tally_.share, here, seconds_since(start_));
}

}  // namespace sparsereel::app::sets
