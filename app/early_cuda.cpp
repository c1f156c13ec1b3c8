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

/// Words with which these compute nothing.
constexpr std::array<std::string_view, 6> kNoWork = {"-h", "--help", "--version", "--dry-run", "--status", "plot"};

/// What may name another device than the arguments: a rank's place among others, settings in a file, one row a card.
constexpr std::array<std::string_view, 4> kRanks = {"RANK=", "PMI_RANK=", "SLURM_PROCID=", "OMPI_COMM_WORLD_RANK="};
constexpr std::array<std::string_view, 2> kElsewhere = {"--config", "--gpus"};
constexpr std::string_view kDevice = "--device";
/// That of a rank which this program has started (ranks/children.h).
constexpr std::string_view kOwnRank = "SPARSEREEL_RANK_DEVICE=";
/// Profilers hear the end of a process (main.cpp), which must not come while the driver starts.
constexpr std::string_view kProfiler = "CUDA_INJECTION64_PATH=";

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

/// Whether it is the option, by itself or with its value.
bool names(std::string_view argument, std::string_view option) {
  return argument.starts_with(option) && (argument.size() == option.size() || argument[option.size()] == '=');
}

/// The GPU that the command will most likely compute on, kNoDevice, or kDriverAlone where files or ranks decide.
int likely_device(char** arguments, char** environment) {
  if (is_set(environment, kProfiler)) return kNoDevice;
  if (is_set(environment, kOwnRank)) return device_of(variable(environment, kOwnRank));
  if (arguments[0] == nullptr || arguments[1] == nullptr || std::ranges::count(kCommands, arguments[1]) == 0)
    return kNoDevice;
  int device =
      std::ranges::any_of(kRanks, [&](std::string_view rank) { return is_set(environment, rank); }) ? kDriverAlone : 0;
  bool is_named = false;
  for (char** next = arguments + 2; *next != nullptr; ++next) {
    const std::string_view argument = *next;
    if (std::ranges::count(kNoWork, argument) > 0) return kNoDevice;
    if (names(argument, kDevice)) {
      is_named = true;  // the last one counts
      if (argument.size() > kDevice.size()) device = device_of(argument.substr(kDevice.size() + 1));
      if (argument.size() == kDevice.size() && next[1] != nullptr) device = device_of(*++next);
    } else if (!is_named && std::ranges::any_of(kElsewhere, [&](auto option) { return names(argument, option); })) {
      device = kDriverAlone;
    }
  }
  return device;
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
