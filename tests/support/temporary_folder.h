// A temporary folder for each test, and a check that a call throws an Error whose message has given parts.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::test {

/// A new empty folder. The destructor removes it with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sparsereel-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Returns the sorted names of a folder's entries, hidden ones too.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Passes if `call` throws an Error whose cause contains each of `parts` and which has a remedy.
template <typename Call>
::testing::AssertionResult throws_error(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
  } catch (const Error& error) {
    const std::string cause = error.what();
    for (const std::string& part : parts) {
      if (cause.find(part) == std::string::npos)
        return ::testing::AssertionFailure() << "no \"" << part << "\" in: " << cause;
    }
    if (error.remedy().empty()) return ::testing::AssertionFailure() << "no remedy for: " << cause;
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace sparsereel::test
