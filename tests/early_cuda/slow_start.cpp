// Tests that a program survives a driver that is loaded before the dynamic loader runs the libraries' constructors.
// This happens on a busy machine, if the main thread has to wait.
#include <dlfcn.h>
#include <sched.h>

#include <cstdio>

#include "app/early_cuda.h"

namespace {

bool is_driver_loaded() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

void start_and_wait(int /*count*/, char** arguments, char** environment) {
  sparsereel::app::start_cuda_early(arguments, environment);
  for (int i = 0; i < 1'000'000 && !is_driver_loaded(); ++i) sched_yield();
}

// The dynamic loader calls these functions before it runs constructors.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kEntry)(int, char**, char**) = start_and_wait;

}  // namespace

/// Returns 0 if the driver is loaded, and other libraries do not see its functions.
int main() {
  if (!is_driver_loaded()) {
    std::puts("the driver was not loaded: give a command that computes on a GPU");
    return 1;
  }
  return dlsym(RTLD_DEFAULT, "cuInit") == nullptr ? 0 : 1;
}
