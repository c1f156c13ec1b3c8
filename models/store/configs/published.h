// Where a model of configs/ is published, and what to download of it. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Files of one repository of Hugging Face.
struct Download {
  std::string repository;               // "ORGANISATION/NAME"
  std::vector<std::string> files = {};  // those that are needed; empty: all, or those of the pattern
  std::string pattern = {};             // "vae/*"
  std::string folder = {};              // to put them into; empty: the repository's own name
};

/// One way to get a model.
struct Published {
  std::vector<std::string> names;        // of the first repository: organisations move
  std::string holds = {};                // "14B in fp8"; empty: the model as its authors publish it
  std::vector<Download> downloads = {};  // the first is of names.front()
  std::optional<double> gigabytes = {};  // 1e9 bytes, of all downloads together; nothing where nobody knows
  std::string use = {};                  // options that name the folders: "-m NAME"

  /// The same by another name of the first repository.
  Published named(const std::string& name) const;
};

/// "NAME" of "ORGANISATION/NAME".
std::string name_of_repository(const std::string& repository);

/// Returns true for ORGANISATION/NAME that does not look like a path.
bool is_repository_name(const std::string& text);

/// "hf download ORGANISATION/NAME --local-dir NAME", quoted for a shell.
std::string download_command(const Download& download);

}  // namespace sparsereel::models
