// Reads new lines of a manifest that another process appends to.
#include "app/jobs/batch/manifest_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace sparsereel::app::sets {

ManifestReader::ManifestReader(std::filesystem::path path) : path_(std::move(path)) {}

ManifestReader::~ManifestReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

ManifestReader::ManifestReader(ManifestReader&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), read_(other.read_) {}

void ManifestReader::begin() {
  if (descriptor_ >= 0) return;
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg): POSIX
  if (descriptor_ < 0) throw changed("was moved or removed");
  read_ = size();
}

std::string ManifestReader::new_lines() {
  if (descriptor_ < 0) return {};
  const off_t now = size();
  if (now < read_) throw changed("became shorter");
  std::string text(static_cast<size_t>(now - read_), '\0');
  const ssize_t count = pread(descriptor_, text.data(), text.size(), read_);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  text.resize(text.find_last_of('\n') + 1);
  read_ += static_cast<off_t>(text.size());
  return text;
}

Error ManifestReader::changed(const std::string& what) const {
  return run_failure(path_.string() + ": " + what + " during the run",
                     "run the same command again, and leave the folder alone meanwhile: videos that the manifest still "
                     "lists are kept");
}

off_t ManifestReader::size() const {
  struct stat status {};
  return fstat(descriptor_, &status) == 0 ? status.st_size : 0;
}

}  // namespace sparsereel::app::sets
