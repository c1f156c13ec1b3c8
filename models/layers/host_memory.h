// Lets the C library keep the memory of freed activations for the next layer. No torch.
#pragma once

#include <cstdlib>  // tells whether there is __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sparsereel::models {

/// By default, glibc returns freed temporaries of tens of MB to the operating system. The next layer then pays a page
/// fault per 4 KB, which takes 13% of a transformer step of the tiny model. After this call glibc keeps blocks of up to
/// 64 MB, and at most 512 MB at the end of its heap. Larger blocks (weights) still return at once. The call affects the
/// whole process. A second call has no effect, nor has a call with another C library.
inline void keep_freed_host_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace sparsereel::models
