// The repositories that publish a model of configs/, and the files to download. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Files of one Hugging Face repository.
struct Download {
  std::string repository;               // "ORGANIZATION/NAME"
  std::vector<std::string> files = {};  // empty for all files, or if `pattern` selects files
  std::string pattern = {};             // "vae/*"
  std::string folder = {};              // destination; empty for the repository's own name
};

/// One way to get a model.
struct Published {
  std::vector<std::string> names;        // names of the first repository; several if it was renamed
  std::string holds = {};                // "14B in fp8"; empty for the model as its authors publish it
  std::vector<Download> downloads = {};  // the first one is from names.front()
  std::optional<double> gigabytes = {};  // 1e9 bytes, of all downloads together; nothing if unknown
  std::string use = {};                  // options that name the folders: "-m NAME"

  /// Returns a copy with another name of the first repository.
  Published named(const std::string& name) const;
};

/// Returns "NAME" for "ORGANIZATION/NAME".
std::string name_of_repository(const std::string& repository);

/// Returns true for "ORGANIZATION/NAME", but not for the path of a file, such as "FOLDER/NAME.gguf".
bool is_repository_name(const std::string& text);

/// Returns "hf download ORGANIZATION/NAME --local-dir NAME", quoted for a shell.
std::string download_command(const Download& download);

}  // namespace sparsereel::models
