// Sets OpenMP's and libtorch's numbers of threads.
#include "models/layers/cpu_threads.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

namespace sparsereel::models {

bool gives_all_threads() {
  return omp_get_dynamic() == 0 && omp_get_max_active_levels() > 0 && at::get_num_threads() <= omp_get_thread_limit();
}

AllThreads::AllThreads() : dynamic_(omp_get_dynamic()), levels_(omp_get_max_active_levels()) {
  omp_set_dynamic(0);
  omp_set_max_active_levels(std::max(1, levels_));
  if (at::get_num_threads() > omp_get_thread_limit()) set_threads(at::get_num_threads());
}

AllThreads::~AllThreads() {
  omp_set_dynamic(dynamic_);
  omp_set_max_active_levels(levels_);
}

void set_threads(int threads) {
  at::set_num_threads(std::min(threads, omp_get_thread_limit()));
}

}  // namespace sparsereel::models
