// What marks a function for both sides where a source is compiled for a GPU too.
#pragma once

#ifdef __CUDACC__
#define SPARSEREEL_HOST_DEVICE __host__ __device__
#else
#define SPARSEREEL_HOST_DEVICE
#endif
