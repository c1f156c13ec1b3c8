// Keeps paths of this machine out of what clients read. No torch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/option_table.h"
#include "hilbert/error.h"

namespace sparsereel::app::serve {

class HiddenPaths {
 public:
  HiddenPaths() = default;
  /// Hides these folders and files, and those that the settings name. Clients see only the name of a hidden file.
  HiddenPaths(const std::vector<std::filesystem::path>& paths, const Settings& settings);

  std::string for_clients(std::string text) const;
  /// Returns the same error without the folders of files.
  Error for_clients(const Error& error) const;

 private:
  void add(const std::filesystem::path& path);

  std::vector<std::string> roots_;  // with '/' at the end; the longest first
};

}  // namespace sparsereel::app::serve
