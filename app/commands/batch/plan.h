// Rows of a prompt set -> what each one's video will be, checked before anything is rendered.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/commands/batch/manifest.h"
#include "app/commands/batch/prompt_set.h"
#include "app/commands/batch/share.h"
#include "app/options.h"

namespace sparsereel::app::sets {

struct BatchOptions {
  std::filesystem::path set;     // FILE
  std::filesystem::path folder;  // -o
  std::filesystem::path status;  // --status; empty: render
  std::string share;             // --share; empty: by the launcher's variables
  std::string format = "mp4";    // of videos whose row does not name its output
};

/// What a row's settings are made of besides its own values.
struct SetSettings {
  std::map<std::string, std::string> command_line;
  std::string config_file;
  Settings merged;  // of the two and the model's config
};

struct PlannedRow {
  int64_t index = 0;   // in the set, from 0
  std::string place;   // "set.csv:3"
  std::string output;  // the video's name in the folder
  Settings settings;
  GenerateOptions options;
  models::GenerateSettings resolved;  // where the row is not bad
  nlohmann::json recipe;              // likewise, else empty
  std::string identity;               // likewise
  at::Tensor text;                    // its embeddings, on the CPU
  std::vector<std::string> told;      // warnings that come before the work
  std::vector<std::string> warnings;  // and those of the work
  int64_t resumed_at_step = 0;
  std::string cause, remedy;  // why the row is bad, with the place of the row or of its value; empty: it is not

  void fail(const Error& error);
};

/// Merges the settings of this share's rows and names their videos. Rows whose own values are impossible are kept with
/// their cause. Throws Error for what concerns the whole set: a file that a row or the report would write and that
/// another row writes, or any reads. Nothing is written yet.
std::vector<PlannedRow> plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set,
                                  const BatchOptions& options, const Share& share);

/// What only one pipeline at a time can serve: model, device, dtype and offload. Rows that are bad already share one.
std::string pipeline_key(const PlannedRow& row);

/// --init-latents by their file: rows that begin with the same ones share them.
using LoadedLatents = std::map<std::filesystem::path, at::Tensor>;

/// Checks the row against its model and fills in recipe and identity; an Error becomes the row's cause.
void resolve_row(PlannedRow& row, const models::Pipeline& pipeline, LoadedLatents& loaded);

/// The line that says that this very video is finished, where its files are still there and the video is what was
/// written; null where there is none.
const ManifestEntry* find_finished(const PlannedRow& row, const std::vector<ManifestEntry>& entries,
                                   const std::filesystem::path& folder);

/// Removes the temporaries that killed runs left of these rows' videos, contact sheets and latents; nobody else may be
/// rendering them.
void remove_leftovers(const std::vector<PlannedRow>& rows);

}  // namespace sparsereel::app::sets
