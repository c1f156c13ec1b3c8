// CPU threads of libtorch. oneDNN's products leave rows out, without an error, where OpenMP gives fewer threads than
// libtorch asks for: with OMP_DYNAMIC=true, OMP_MAX_ACTIVE_LEVELS=0, or more threads than OMP_THREAD_LIMIT.
#pragma once

namespace sparsereel::models {

/// Returns true if OpenMP gives the calling thread as many threads as libtorch asks for.
bool gives_all_threads();

/// While one lives, gives_all_threads() is true on the thread that made it. Its OpenMP settings come back afterwards;
/// more threads than OMP_THREAD_LIMIT do not.
class AllThreads {
 public:
  AllThreads();
  ~AllThreads();
  AllThreads(const AllThreads&) = delete;
  AllThreads& operator=(const AllThreads&) = delete;

 private:
  int dynamic_, levels_;
};

/// Sets how many threads libtorch uses, at least 1; more than OMP_THREAD_LIMIT are cut down to it.
void set_threads(int threads);

}  // namespace sparsereel::models
