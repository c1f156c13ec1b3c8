// Reads with POSIX calls, because std::ifstream would wait at opening a pipe until another process opens its other end.
#include "models/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

Error unreadable(const std::string& name, int error) {
  return bad_file(name, "cannot be read: " + std::generic_category().message(error),
                  "check that it is there and that you may read it");
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

 private:
  int value_;
};

}  // namespace

std::string mebibytes(uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

std::string read_text(const std::filesystem::path& file, uint64_t most) {
  return read_regular_file(file, most, "name an ordinary file of less than " + mebibytes(most));
}

std::string read_descriptor(int descriptor, const std::string& name, uint64_t most, const std::string& remedy) {
  constexpr size_t kPiece = 1 << 20;
  std::string content;
  for (size_t size = 0;;) {
    content.resize(std::min<uint64_t>(size + kPiece, most + 1));
    const ssize_t count = ::read(descriptor, content.data() + size, content.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw unreadable(name, errno);
    size += static_cast<size_t>(count);
    if (size > most) throw bad_file(name, "is larger than " + mebibytes(most), remedy);
    if (count > 0) continue;
    content.resize(size);
    return content;
  }
}

std::string read_regular_file(const std::filesystem::path& path, uint64_t most, const std::string& remedy) {
  const std::string name = path.string();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) throw bad_file(name, "no such file", remedy);
  if (file < 0) throw unreadable(name, errno);
  const Descriptor closed(file);
  struct stat status {};
  if (::fstat(file, &status) != 0) throw unreadable(name, errno);
  if (S_ISDIR(status.st_mode)) throw bad_file(name, "is a folder, not a file", remedy);
  if (!S_ISREG(status.st_mode)) throw bad_file(name, "is a device or a pipe, not an ordinary file", remedy);
  return read_descriptor(file, name, most, remedy);
}

}  // namespace sparsereel::models
