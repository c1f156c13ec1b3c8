// Searches near the file (program or shared library) that contains this code.
#include "models/store/configs/data_folder.h"

#include <dlfcn.h>
#include <link.h>

#include <system_error>

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Returns the file that contains this code; empty if the loader does not know it.
fs::path own_file() {
  Dl_info info = {};
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&data_folder);
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) return {};
  // The loader's list has an empty name for the program itself. argv[0] would not do, because it may be a relative path
  // or any other text.
  const fs::path file = map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name;
  std::error_code error;
  return fs::canonical(file, error);
}

bool holds_data(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "configs" / "tiny.yaml", error);
}

}  // namespace

fs::path data_folder() {
  const fs::path folder = own_file().parent_path();
  // Look for an installation first: its prefix may contain an unrelated folder named configs. Two levels are tried,
  // because a library may be in lib, in lib64 or in lib/x86_64-linux-gnu.
  for (const fs::path& prefix : {folder.parent_path(), folder.parent_path().parent_path()})
    if (const fs::path shared = prefix / "share" / "sparsereel"; holds_data(shared)) return shared;
  if (holds_data(folder.parent_path())) return folder.parent_path();
  return SPARSEREEL_SOURCE_DIR;
}

}  // namespace sparsereel::models
