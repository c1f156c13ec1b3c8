// NVIDIA's NCCL as it comes with libtorch's wheel, without its header. libtorch_cuda.so has loaded the library before
// anything asks for it. Numbers and layouts follow NCCL's binary interface, unchanged since 2.14.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace sparsereel::models::nccl {

struct Communicator;  // defined by NCCL
using Stream = void*;

enum class Result : int { success = 0, in_progress = 7 };
enum class DataType : int { uint8 = 1, int64 = 4, float16 = 6, float32 = 7, bfloat16 = 9 };
enum class Operation : int { sum = 0, max = 2 };

struct UniqueId {
  std::array<char, 128> bytes{};
};

/// The first members of ncclConfig_t. Version 2.14 of NCCL has no others, and later versions fill in the rest.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

struct Library {
  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  const char* (*error_string)(Result);
  const char* (*last_error)(Communicator*);
  Result (*init_rank)(Communicator**, int size, UniqueId, int rank, Config*);
  Result (*split)(Communicator*, int color, int key, Communicator**, Config*);
  Result (*finalize)(Communicator*);
  Result (*destroy)(Communicator*);
  Result (*abort)(Communicator*);
  Result (*async_error)(Communicator*, Result*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, size_t count, DataType, int peer, Communicator*, Stream);
  Result (*receive)(void*, size_t count, DataType, int peer, Communicator*, Stream);
  Result (*all_reduce)(const void*, void*, size_t count, DataType, Operation, Communicator*, Stream);
  Result (*broadcast)(const void*, void*, size_t count, DataType, int root, Communicator*, Stream);
};

/// Returns NCCL's functions; null if the library is missing. `reason` then says why.
const Library* find_library(std::string* reason = nullptr);
/// Returns NCCL's functions. Throws Error if the library is missing.
const Library& library();

/// Returns the version, "2.28.9"; empty if NCCL is missing. `file` receives the library's path.
std::string version(std::string* file = nullptr);

}  // namespace sparsereel::models::nccl
