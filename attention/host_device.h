// Marks functions for both host and device if a source is compiled for a GPU.
#pragma once

#ifdef __CUDACC__
#define SPARSEREEL_HOST_DEVICE __host__ __device__
#else
#define SPARSEREEL_HOST_DEVICE
#endif
