// CPU threads of libtorch. If OpenMP gives fewer threads than libtorch asks for, oneDNN's products silently leave rows
// out. This happens with OMP_DYNAMIC=true, OMP_MAX_ACTIVE_LEVELS=0, or more threads than OMP_THREAD_LIMIT.
#pragma once

namespace sparsereel::models {

/// Returns true if OpenMP gives the calling thread as many threads as libtorch asks for.
bool gives_all_threads();

/// Makes gives_all_threads() true on its thread during its lifetime. It restores OpenMP's settings afterwards, but not
/// a number of threads above OMP_THREAD_LIMIT.
class AllThreads {
 public:
  AllThreads();
  ~AllThreads();
  AllThreads(const AllThreads&) = delete;
  AllThreads& operator=(const AllThreads&) = delete;

 private:
  int dynamic_, levels_;
};

/// Sets the number of threads that libtorch uses, at least 1. A number above OMP_THREAD_LIMIT is reduced to it.
void set_threads(int threads);

}  // namespace sparsereel::models
