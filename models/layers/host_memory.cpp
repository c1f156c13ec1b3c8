// glibc's malloc settings (mallopt(3)).
#include "models/layers/host_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sparsereel::models {

void keep_freed_host_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace sparsereel::models
