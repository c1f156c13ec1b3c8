// The files of a run: checked before any time is spent, and the one where the latents wait until the video is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options.h"
#include "hilbert/error.h"

namespace sparsereel::app {

/// A file of a run and how to name it to the user; an empty path is none.
struct NamedFile {
  std::string option;
  std::filesystem::path path;
};

/// Whatever they are called, and whether or not they are there.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Those that the command's options of the table name.
std::vector<NamedFile> files_of(Command command, const Settings& settings);

/// Throws Error when two of the files are one. Comes before the report is begun, since failed runs write it too.
void check_distinct(const std::vector<NamedFile>& files);

/// The same for the files of `generate` and `decode`: outputs, the report among them, and what the run reads (`config`,
/// the file of --config; `decoded`, the latents of `decode`; empty paths where there is none).
void check_distinct_files(const Settings& settings, const std::filesystem::path& config,
                          const std::filesystem::path& decoded);

/// Throws Error when an output cannot be written. `decoded`: as above.
void check_outputs(const Settings& settings, const RunOptions& run, const std::filesystem::path& decoded = {});

/// "clip.mp4" -> "clip.mp4.latents.safetensors"; where that exists (an earlier run's), "clip.mp4.latents-2.safetensors"
/// and so on: the first name that is free.
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
