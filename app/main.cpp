// Runs the program and ends the process.
#include "app/program.h"

#include <cstdio>
#include <cstdlib>

namespace {

/// Returns true if a profiler or sanitizer is attached: they write their reports when libraries are unloaded, so the
/// program must then exit normally.
bool is_watched() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return std::getenv("CUDA_INJECTION64_PATH") != nullptr;  // NOLINT(concurrency-mt-unsafe): no thread changes it
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int exit_code = sparsereel::app::run_program(argc, argv);
  if (is_watched()) return exit_code;
  // All files are written. The operating system frees the libraries' resources faster than the libraries do; with a
  // GPU, that saves 0.3 s.
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
