// Stands in for the GPU's driver, libcuda.so.1. Every call fails, as without a GPU.
extern "C" {
int cuInit(unsigned /*flags*/) {
  return 1;
}
int cuDeviceGet(int* /*device*/, int /*ordinal*/) {
  return 1;
}
int cuDevicePrimaryCtxRetain(void** /*context*/, int /*device*/) {
  return 1;
}
}
