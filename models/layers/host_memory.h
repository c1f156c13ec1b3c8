// Lets the C library keep the memory of freed activations for the next layer. No torch.
#pragma once

#include <cstdlib>  // tells whether there is __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sparsereel::models {

/// Temporaries of tens of MB would return to the kernel when a layer frees them. The next layer would then pay a page
/// fault per 4 KB: 13% of a transformer step of the tiny model. After this call glibc keeps blocks of up to 64 MB, and
/// at most 512 MB at the end of its heap. Larger blocks (weights) still return at once. It affects the whole process;
/// calling it again, or with another C library, has no effect.
inline void keep_freed_host_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace sparsereel::models
