#include "app/program.h"

#include <cstdio>
#include <cstdlib>

namespace {

/// Who looks at a process from within hears of its end from the libraries: a profiler, a sanitizer.
bool is_watched() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return std::getenv("CUDA_INJECTION64_PATH") != nullptr;  // NOLINT(concurrency-mt-unsafe): nobody sets it
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int exit_code = sparsereel::app::run_program(argc, argv);
  if (is_watched()) return exit_code;
  // Everything is written. What libraries hold the system takes back faster than they do: with a GPU 0.3 s.
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
