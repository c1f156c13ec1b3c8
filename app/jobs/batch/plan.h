// Rows of a prompt set -> videos, checked before anything is rendered.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/jobs/batch/prompt_set.h"
#include "app/jobs/batch/share.h"
#include "app/jobs/video.h"

namespace sparsereel::app::sets {

struct BatchOptions {
  std::filesystem::path set;     // FILE
  std::filesystem::path folder;  // -o
  std::filesystem::path status;  // --status; empty: render
  std::string input_format;      // of FILE; empty: by its extension, of standard input by how it begins
  std::string share;             // --share; empty: by the launcher's variables
  std::string format = "mp4";    // of videos whose row does not name its output
  int64_t gpus_per_video = 1;    // of --gpus: that make a video together
};

/// What a row's settings are made of besides its own values.
struct SetSettings {
  std::map<std::string, std::string> command_line;
  std::string config_file;
  Settings merged;  // of the two and the model's config
};

struct SetPlan {
  std::vector<Video> rows;      // of this share
  std::set<std::string> names;  // of all rows' videos
};

/// The videos of this share's rows, with merged settings and a name each. Rows whose own values are impossible are kept
/// as failed. Throws Error for what concerns the whole set: a file that a row or the report would write and that
/// another row writes, or any reads. Nothing is written yet.
SetPlan plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set, const BatchOptions& options,
                  const Share& share);

/// What only one pipeline at a time can serve: model, LoRAs, device, dtypes, weights and offload. Rows that are bad
/// already share one.
std::string pipeline_key(const Video& row);

/// Rows that one pipeline serves together, in their order.
std::vector<std::vector<Video*>> groups_of(std::vector<Video>& rows);

/// Its name in the folder.
std::string name_of(const Video& row);

/// An Error becomes the row's failure.
void resolve_row(Video& row, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks = 1);

/// Of the row that resolve_row() resolved, had it this seed.
std::string identity_with_seed(const Video& row, uint64_t seed);

/// Whether what the row has to write can be written; an Error becomes its failure.
void check_row_outputs(Video& row);

/// The same of a finished video that is to get the row's name.
void check_row_name(Video& row);

/// Removes the temporaries that killed runs left of these rows' videos, contact sheets and latents.
void remove_leftovers(const std::vector<Video>& rows);

}  // namespace sparsereel::app::sets
