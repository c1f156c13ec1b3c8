// Looks up NCCL's functions by name.
#include "models/parallel/nccl_library.h"

#include <dlfcn.h>

#include "hilbert/error.h"

namespace sparsereel::models::nccl {
namespace {

struct Found {
  Library library{};
  std::string reason;  // why the library is unusable; empty if it is usable
};

Found load_nccl() {
  Found found;
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  // Global, because a libtorch that is loaded later needs the library's symbols.
  if (handle == nullptr) handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    found.reason = "libnccl.so.2 was not found";
    return found;
  }
  const auto load = [&]<typename Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (function == nullptr && found.reason.empty()) found.reason = std::string("libnccl.so.2 has no ") + name;
  };
  Library& library = found.library;
  load("ncclGetVersion", library.get_version);
  load("ncclGetUniqueId", library.get_unique_id);
  load("ncclGetErrorString", library.error_string);
  load("ncclGetLastError", library.last_error);
  load("ncclCommInitRankConfig", library.init_rank);
  load("ncclCommSplit", library.split);
  load("ncclCommFinalize", library.finalize);
  load("ncclCommDestroy", library.destroy);
  load("ncclCommAbort", library.abort);
  load("ncclCommGetAsyncError", library.async_error);
  load("ncclGroupStart", library.group_start);
  load("ncclGroupEnd", library.group_end);
  load("ncclSend", library.send);
  load("ncclRecv", library.receive);
  load("ncclAllReduce", library.all_reduce);
  load("ncclBroadcast", library.broadcast);
  return found;
}

const Found& found_nccl() {
  static const Found found = load_nccl();
  return found;
}

}  // namespace

const Library* find_library(std::string* reason) {
  const Found& found = found_nccl();
  if (reason != nullptr) *reason = found.reason;
  return found.reason.empty() ? &found.library : nullptr;
}

const Library& library() {
  std::string reason;
  if (const Library* found = find_library(&reason)) return *found;
  throw bad_input("several GPUs need NCCL: " + reason,
                  "run ./app/quickstart on this machine: it installs libtorch with CUDA's libraries");
}

std::string version(std::string* file) {
  const Library* found = find_library();
  int number = 0;
  if (found == nullptr || found->get_version(&number) != Result::success) return {};
  Dl_info info{};
  if (file != nullptr && dladdr(reinterpret_cast<const void*>(found->get_version), &info) != 0) *file = info.dli_fname;
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

}  // namespace sparsereel::models::nccl
