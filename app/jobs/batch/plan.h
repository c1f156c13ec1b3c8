// Plans the videos of a prompt set and checks them before anything is rendered.
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
  std::filesystem::path set;     // the prompt set: FILE
  std::filesystem::path folder;  // output folder: -o
  std::filesystem::path status;  // --status: the folder to sum up; empty to render
  /// Format of FILE; empty to guess it from the extension, or from the first line of standard input.
  std::string input_format;
  std::string share;           // --share; empty to take it from the launcher's variables
  std::string format = "mp4";  // format of videos whose row names no output
  int64_t gpus_per_video = 1;  // how many of --gpus make a video together
};

/// The settings that apply to every row of a set, in addition to the row's own values.
struct SetSettings {
  std::map<std::string, std::string> command_line;
  std::string config_file;
  Settings merged;  // the two above and the model's config
};

struct SetPlan {
  std::vector<VideoTask> rows;  // rows of this share
  std::set<std::string> names;  // file names of all rows' videos
};

/// Returns the rows of this share as videos, each with its file names and with the row's settings merged over those of
/// the set. Rows with invalid values are kept and marked as failed. Throws Error if the rows of the set and the report
/// together would write a file twice, or would both read and write a file. Writes nothing.
SetPlan plan_rows(const std::vector<PromptRow>& rows, const SetSettings& set, const BatchOptions& options,
                  const Share& share);

/// Returns a key that is equal for rows that one pipeline can serve. It consists of the model's path, the fields of
/// models::pipeline_key() and, if images may decide which files are read, whether the row has images. Rows that have
/// already failed share a key.
std::string pipeline_key(const VideoTask& row);

/// Groups the rows by pipeline_key(), in their order.
std::vector<std::vector<VideoTask*>> groups_of(std::vector<VideoTask>& rows);

/// Returns the file name of the video in the folder.
std::string name_of(const VideoTask& row);

/// Resolves the row; `ranks` is the number of ranks that make its video together. An Error becomes the row's failure.
void resolve_row(VideoTask& row, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks = 1);

/// Returns the identity (hash of the recipe) that the resolved row would have with this seed.
std::string identity_with_seed(const VideoTask& row, uint64_t seed);

/// Checks that the row's outputs can be written. An Error becomes the row's failure.
void check_row_outputs(VideoTask& row);

/// Checks that a finished video can be renamed to the row's name. An Error becomes the row's failure.
void check_row_name(VideoTask& row);

/// Removes temporary files that killed runs left for the videos, contact sheets and latents of these rows.
void remove_leftovers(const std::vector<VideoTask>& rows);

}  // namespace sparsereel::app::sets
