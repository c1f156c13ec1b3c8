// Checks, places and removes the files beside a video.
#include "app/media/kind_beside.h"

#include <string>

#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

std::string remedy_of(const KindBeside& kind) {
  return std::string("move that file, choose another --output, or give ") + kind.without;
}

}  // namespace

void KindBeside::check(const fs::path& path) const {
  const models::AtomicFile probe(path);
  if (fs::exists(path) && !is_own(path))
    throw bad_input(
        path.string() + " would hold the " + content + " of the video, but it exists and holds something else",
        remedy_of(*this));
}

void KindBeside::place(models::AtomicFile& file) const {
  if (file.place(is_own)) return;
  throw run_failure(file.target().string() + ", made while the video was in the making, holds something else",
                    remedy_of(*this));
}

void KindBeside::remove(const fs::path& path) const {
  models::remove_if(path, is_own);
}

}  // namespace sparsereel::app
