// Reads a file piece by piece; see file_hash.h.
#include "app/file_hash.h"

#include <fstream>
#include <vector>

#include "hilbert/error.h"
#include "models/checkpoint/sha256.h"

namespace sparsereel::app {

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  models::Sha256 hash;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0)
    hash.update(buffer.data(), static_cast<size_t>(file.gcount()));
  if (!file.eof()) throw bad_file(path, "cannot be read", "check the path and its permissions");
  return hash.hex();
}

}  // namespace sparsereel::app
