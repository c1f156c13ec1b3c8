// Checks the files of a run before any time is spent, and keeps latents until the video is written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "hilbert/error.h"
#include "models/request/latents.h"
#include "models/store/checkpoint/model_files.h"

namespace sparsereel::app {

/// A file of a run, with the name that errors use for it. An empty path means no file.
struct NamedFile {
  std::string option;
  std::filesystem::path path;
  bool written = false;  // true if the run writes the file, false if it reads it
};

/// Returns true if both paths lead to one file, whether or not it exists.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Returns the files that the command's options in option_table.h name.
std::vector<NamedFile> files_of(Command command, const Settings& settings);

/// Throws Error if two of the files are the same. Call it before the report begins, because failed runs write the
/// report too.
void check_distinct(const std::vector<NamedFile>& files);

models::ModelFiles files_of_model(const Settings& settings);

/// Throws Error if a written file is one of the model's files, or would lie among its weights and configs.
void check_model_is_untouched(const std::vector<NamedFile>& files, const models::ModelFiles& model);

/// Runs both checks above for the videos of `generate`; removes nothing. `config` is the file of --config.
void check_distinct(const std::vector<Settings>& videos, const std::filesystem::path& config);

/// Runs both checks above for a run with these settings, then removes the temporary files that killed runs left for its
/// outputs.
void check_files(const std::vector<NamedFile>& files, const Settings& settings);

/// Does the same for the videos of `generate` and `decode`: for their outputs, the report, and the files that they
/// read. `config` is the file of --config and `decoded` the latents of `decode`; either may be empty.
void check_files(const std::vector<Settings>& videos, const std::filesystem::path& config,
                 const std::filesystem::path& decoded);

/// Throws Error if the video or its recipe cannot be written.
void check_video(const RunOptions& run);

/// Throws Error if an output cannot be written. `decoded`: the latents of `decode`, if any.
void check_outputs(const Settings& settings, const RunOptions& run, const std::filesystem::path& decoded = {});

/// A kind of file that a run may leave beside an output: "clip.mp4.KIND.safetensors", "clip.mp4.KIND-2.safetensors" and
/// so on.
struct BesideKind {
  std::string name, ending = ".safetensors";
};

struct FileBeside {
  std::filesystem::path path, output;
  int64_t number = 1;
};

/// Returns all files with such names in the folder, whatever they hold, sorted by output and number. Numbers may have
/// gaps.
std::vector<FileBeside> files_beside_outputs(const std::filesystem::path& folder, const BesideKind& kind);

/// Returns the files of one output, lowest number first.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& output, const BesideKind& kind);

/// Returns the first free name of this kind beside the output.
std::filesystem::path free_beside(const std::filesystem::path& output, const BesideKind& kind);

/// Returns the file in which latents are kept until the video is written: for "clip.mp4" it is
/// "clip.mp4.latents.safetensors", or the first such name that is free.
std::filesystem::path latents_beside(const std::filesystem::path& output);

/// Keeps the latents of a run: in the file of --save-latents, or else beside the output until the video is written. The
/// user did not ask for the file beside the output, so it never replaces another file. let_go() removes that file and
/// the file of an earlier failed run with the same latents, but no others. If latents cannot be saved, the run
/// continues, because its steps are done.
class KeptLatents {
 public:
  /// `asked` is the file of --save-latents; empty if it was not given.
  KeptLatents(std::filesystem::path asked, std::filesystem::path output);

  /// Returns a warning if the file could not be written, else nothing.
  std::string save(const models::Latents& latents, const std::string& recipe);
  /// Call it once the video is written. Throws Error if the user asked for the file and it could not be written.
  void check() const;
  /// Returns the saved file; empty if nothing was saved.
  const std::filesystem::path& saved() const { return saved_; }
  /// Call it once the video exists. Removes the file, unless the user asked for it, and the file of an earlier run with
  /// the same latents.
  void let_go();

 private:
  std::filesystem::path asked_, output_, saved_;
  std::filesystem::path earlier_;  // file of an earlier, failed run with the same latents
  std::optional<Error> failure_;
};

}  // namespace sparsereel::app
