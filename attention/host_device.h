// Defines SPARSEREEL_HOST_DEVICE, which marks a function for host and device in sources that nvcc compiles.
#pragma once

#ifdef __CUDACC__
#define SPARSEREEL_HOST_DEVICE __host__ __device__
#else
#define SPARSEREEL_HOST_DEVICE
#endif
