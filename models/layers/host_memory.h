// Lets the C library keep the memory of freed activations for the next layer. No torch.
#pragma once

#include <cstdlib>  // tells whether there is __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace sparsereel::models {

/// A layer's temporaries of tens of MB would go back to the kernel when they are freed, and cost a page fault per 4 KB
/// when the next layer asks for the same again: 13% of a denoiser step of the tiny model. After this call glibc keeps
/// blocks of up to 64 MB, and at most 512 MB at the end of its heap; larger blocks (weights) still go back at once. For
/// the whole process; a second call and other C libraries: no effect.
inline void keep_freed_host_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

}  // namespace sparsereel::models
