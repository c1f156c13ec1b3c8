// Where a model of configs/ is published: repositories, and the files to download. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sparsereel::models {

/// Files of one Hugging Face repository.
struct Download {
  std::string repository;               // "ORGANIZATION/NAME"
  std::vector<std::string> files = {};  // files to download; empty for all files, or if `pattern` selects them
  std::string pattern = {};             // selects files: "vae/*"; empty if `files` lists them
  std::string folder = {};              // folder to download to; empty for the repository's own name
};

/// One way to get a model.
struct Published {
  std::vector<std::string> names;        // names of the first download's repository; several if it was renamed
  std::string holds = {};                // what it is: "14B in fp8"; empty for the model as its authors publish it
  std::vector<Download> downloads = {};  // the first download is from names.front()
  std::optional<double> gigabytes = {};  // size of all downloads together, in 1e9 bytes; nullopt if unknown
  std::string use = {};                  // the program's options for the downloaded folders: "-m NAME"

  /// Returns a copy in which the first download's repository has this name.
  Published named(const std::string& name) const;
};

/// Returns the last part of a repository's name: "NAME" for "ORGANIZATION/NAME".
std::string name_of_repository(const std::string& repository);

/// Returns true for "ORGANIZATION/NAME", but not for the path of a file, such as "FOLDER/NAME.gguf".
bool is_repository_name(const std::string& text);

/// Returns the shell command "hf download ORGANIZATION/NAME --local-dir NAME", with quotes where a shell needs them.
std::string download_command(const Download& download);

}  // namespace sparsereel::models
