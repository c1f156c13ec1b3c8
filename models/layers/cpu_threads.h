// Sets libtorch's CPU threads. If OpenMP gives fewer threads than libtorch asks for, oneDNN's matrix products silently
// leave rows uncomputed. This happens with OMP_DYNAMIC=true, OMP_MAX_ACTIVE_LEVELS=0, or more threads than
// OMP_THREAD_LIMIT.
#pragma once

namespace sparsereel::models {

/// Returns true if OpenMP gives the calling thread as many threads as libtorch asks for.
bool gives_all_threads();

/// Makes gives_all_threads() true on the calling thread during this object's lifetime. Its destructor restores OpenMP's
/// settings. If libtorch's number of threads was above OMP_THREAD_LIMIT, it stays reduced.
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
