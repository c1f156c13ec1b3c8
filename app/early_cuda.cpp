// Starts the GPU's driver in a thread, with nothing but the C library.
#include "app/early_cuda.h"

#include <dlfcn.h>
#include <pthread.h>

#include <csignal>
#include <cstdint>

#include "app/early_device.h"

namespace sparsereel::app {
namespace {

template <typename Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

/// Creates the primary context of a device through the CUDA driver API; CUDA's runtime then shares it.
void* start(void* device) {
  // RTLD_GLOBAL would add the driver to the program's list of libraries. The loader would then read past the end of its
  // list of constructors, and crash, if this thread loads the driver before the main thread reads the list's length.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
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
  // Block all signals in the new thread: the program's own threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, start, reinterpret_cast<void*>(static_cast<intptr_t>(device))) == 0)
    pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace sparsereel::app
