// Rows of a prompt set -> videos, checked before anything is rendered.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/commands/batch/manifest.h"
#include "app/commands/batch/prompt_set.h"
#include "app/commands/batch/share.h"
#include "app/job/video.h"

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

/// The videos of this share's rows, with merged settings and a name each. Rows whose own values are impossible are kept
/// as failed. Throws Error for what concerns the whole set: a file that a row or the report would write and that
/// another row writes, or any reads. Nothing is written yet.
std::vector<Video> plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set, const BatchOptions& options,
                             const Share& share);

/// What only one pipeline at a time can serve: model, LoRAs, device, dtypes, weights and offload. Rows that are bad
/// already share one.
std::string pipeline_key(const Video& row);

/// Its name in the folder.
std::string name_of(const Video& row);

/// Checks the row's outputs and resolves it; an Error becomes its failure.
void resolve_row(Video& row, const models::Pipeline& pipeline, LoadedLatents& loaded);

/// The line that says that this very video is finished, where its files are still there and the video is what was
/// written; null where there is none.
const ManifestEntry* find_finished(const Video& row, const std::vector<ManifestEntry>& entries);

/// Removes the temporaries that killed runs left of these rows' videos, contact sheets and latents.
void remove_leftovers(const std::vector<Video>& rows);

}  // namespace sparsereel::app::sets
