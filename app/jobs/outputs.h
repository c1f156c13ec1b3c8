// The files of a run: checked before any time is spent, and the one where the latents wait until the video is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "hilbert/error.h"
#include "models/store/checkpoint/model_files.h"

namespace sparsereel::app {

/// A file of a run and how to name it to the user; an empty path is none.
struct NamedFile {
  std::string option;
  std::filesystem::path path;
  bool written = false;  // the run reads the others
};

/// Whatever they are called, and whether or not they are there.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Those that the command's options of the table name.
std::vector<NamedFile> files_of(Command command, const Settings& settings);

/// Throws Error when two of the files are one. Comes before the report is begun, since failed runs write it too.
void check_distinct(const std::vector<NamedFile>& files);

/// Where the model of the settings is read from.
models::ModelFiles files_of_model(const Settings& settings);

/// Throws Error when one that is written is the model's, or would lie among its weights and configs.
void check_model_is_untouched(const std::vector<NamedFile>& files, const models::ModelFiles& model);

/// Both, for the videos of `generate`; removes nothing. `config`: as below.
void check_distinct(const std::vector<Settings>& videos, const std::filesystem::path& config);

/// Both, for a run with these settings; then what killed runs left of its files goes.
void check_files(const std::vector<NamedFile>& files, const Settings& settings);

/// The same for the videos of `generate` and `decode`: outputs, the report among them, and what the run reads
/// (`config`, the file of --config; `decoded`, the latents of `decode`; empty paths where there is none).
void check_files(const std::vector<Settings>& videos, const std::filesystem::path& config,
                 const std::filesystem::path& decoded);

/// Throws Error when the video or its recipe cannot be written.
void check_video(const RunOptions& run);

/// Throws Error when an output cannot be written. `decoded`: as above.
void check_outputs(const Settings& settings, const RunOptions& run, const std::filesystem::path& decoded = {});

/// What a run may leave beside an output: "clip.mp4.KIND.safetensors", "clip.mp4.KIND-2.safetensors" and so on.
struct BesideKind {
  std::string name, ending = ".safetensors";
};

struct FileBeside {
  std::filesystem::path path, output;
  int64_t number = 1;
};

/// All files of such names in the folder, whatever they hold, by output and number: there may be gaps.
std::vector<FileBeside> files_beside_outputs(const std::filesystem::path& folder, const BesideKind& kind);

/// Those of one output, the lowest number first.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& output, const BesideKind& kind);

/// The first of these names that is free.
std::filesystem::path free_beside(const std::filesystem::path& output, const BesideKind& kind);

/// Where latents are kept until the video is written: "clip.mp4" -> "clip.mp4.latents.safetensors", or the first such
/// name that is free.
std::filesystem::path latents_beside(const std::filesystem::path& output);

/// Where a run keeps its latents: --save-latents, or a file beside the output for the time until the video is written.
/// That one is the program's own doing: it never replaces a file, and removes none but its own and one in which an
/// earlier run that came to no video kept the same latents. Where the file cannot be written the run goes on: its steps
/// are done.
class KeptLatents {
 public:
  /// `asked`: --save-latents; empty where it was not given.
  KeptLatents(std::filesystem::path asked, std::filesystem::path output);

  /// Returns a warning where the file could not be written; empty otherwise.
  std::string save(const at::Tensor& latents, const std::string& recipe);
  /// Once the video is written: throws Error where the file asked for is not there.
  void check() const;
  /// What was saved; empty where nothing was.
  const std::filesystem::path& saved() const { return saved_; }
  /// The video is there: removes the file unless it was asked for, and an earlier run's.
  void let_go();

 private:
  std::filesystem::path asked_, output_, saved_;
  std::filesystem::path earlier_;  // a failed run's file of the same latents
  std::optional<Error> failure_;
};

}  // namespace sparsereel::app
