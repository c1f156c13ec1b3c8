#include "app/early_cuda.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <string_view>

namespace sparsereel::app {
namespace {

constexpr int kNoDevice = -1, kDriverAlone = -2;

constexpr std::array<std::string_view, 5> kCommands = {"generate", "batch", "decode", "bench", "tune"};

/// Those that computing commands end without computing for.
constexpr std::array<std::string_view, 4> kNoWork = {"-h", "--help", "--dry-run", "--version"};

/// What may name another device than the arguments: a rank's place among others, settings in a file.
constexpr std::array<std::string_view, 4> kRanks = {"RANK=", "PMI_RANK=", "SLURM_PROCID=", "OMPI_COMM_WORLD_RANK="};
constexpr std::string_view kConfig = "--config", kDevice = "--device";
/// That of a rank which this program has started (ranks/children.h).
constexpr std::string_view kOwnRank = "SPARSEREEL_RANK_DEVICE=";

/// What follows `name` in the environment; null data where that is not in it.
std::string_view variable(char** environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with(name)) return entry.substr(name.size());
  }
  return {};
}

bool is_set(char** environment, std::string_view name) {
  return variable(environment, name).data() != nullptr;
}

int device_of(std::string_view text) {
  if (text == "auto" || text == "cuda") return 0;
  int number = kNoDevice;
  if (text.starts_with("cuda:")) std::from_chars(text.data() + 5, text.data() + text.size(), number);
  return number;
}

/// The GPU that the command will most likely compute on, kNoDevice, or kDriverAlone where files or ranks decide.
int likely_device(char** arguments, char** environment) {
  if (is_set(environment, kOwnRank)) return device_of(variable(environment, kOwnRank));
  if (arguments[0] == nullptr || arguments[1] == nullptr || std::ranges::count(kCommands, arguments[1]) == 0)
    return kNoDevice;
  int device = 0;
  bool decided_elsewhere =
      std::ranges::any_of(kRanks, [&](std::string_view rank) { return is_set(environment, rank); });
  for (char** next = arguments + 2; *next != nullptr; ++next) {
    const std::string_view argument = *next;
    if (std::ranges::count(kNoWork, argument) > 0) return kNoDevice;
    if (argument.starts_with(kConfig)) decided_elsewhere = true;
    if (argument == kDevice && next[1] != nullptr) return device_of(*++next);
    if (argument.starts_with(kDevice) && argument.size() > kDevice.size() && argument[kDevice.size()] == '=')
      return device_of(argument.substr(kDevice.size() + 1));
  }
  return decided_elsewhere ? kDriverAlone : device;
}

template <typename Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// By the driver's own interface (CUDA driver API, which CUDA's runtime shares): its first context of a device.
void* start(void* device) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return nullptr;
  auto* const init = symbol<int(unsigned)>(driver, "cuInit");
  auto* const get = symbol<int(int*, int)>(driver, "cuDeviceGet");
  auto* const retain = symbol<int(void**, int)>(driver, "cuDevicePrimaryCtxRetain");
  if (init == nullptr || get == nullptr || retain == nullptr || init(0) != 0) return nullptr;
  const auto ordinal = static_cast<int>(reinterpret_cast<intptr_t>(device));
  int handle = 0;
  void* context = nullptr;
  if (ordinal >= 0 && get(&handle, ordinal) == 0) retain(&context, handle);
  return nullptr;
}

}  // namespace

void start_cuda_early(char** arguments, char** environment) {
  const int device = likely_device(arguments, environment);
  if (device == kNoDevice) return;
  // Signals are the program's own threads' to hear.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, start, reinterpret_cast<void*>(static_cast<intptr_t>(device))) == 0)
    pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace sparsereel::app
