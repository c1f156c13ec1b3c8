// Launches the product of int8 rows with the kernel that suits the GPU.
#include <algorithm>

#include "attention/cuda/launched.cuh"
#include "models/layers/cuda/mma_product.cuh"
#include "models/layers/cuda/wgmma_product.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::note;

/// Returns the driver's function that makes tensor maps; null if the driver lacks it. It is looked up at run time, so
/// that programs need not be linked to the driver.
auto encode_map() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  return encode;
}

/// Returns the tensor map of an int8 matrix [rows, depth]. TMA copies it in boxes of box_rows rows of 128 bytes,
/// swizzled.
CUtensorMap map_of(const int8_t* data, int64_t rows, int depth, int box_rows) {
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(depth), static_cast<cuuint64_t>(rows)}, strides[] = {sizes[0]};
  const cuuint32_t box[] = {WgmmaTile::kDepth, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  const CUresult result = encode_map()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<int8_t*>(data), sizes,
                                       strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) note(cudaErrorInvalidValue);
  return map;
}

template <typename T>
void launch_wgmma(const MultiplyRows& p, int processors, Stream stream) {
  using Tile = WgmmaTile;
  const WgmmaMaps maps = {map_of(p.x, p.rows, p.depth, Tile::kRows),
                          map_of(p.weight, p.outputs, p.depth, Tile::kCopiedOutputs)};
  const auto kernel = multiply_by_wgmma<T>;
  attention::cuda::allow_shared_bytes(kernel, kWgmmaBytes);
  const int clusters =
      std::min(TileOrder(p, Tile::kCtas * Tile::kRows, Tile::kOutputs).count(), processors / Tile::kCtas);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Tile::kCtas, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * Tile::kCtas));
  config.blockDim = dim3(Tile::kThreads);
  config.dynamicSmemBytes = kWgmmaBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  note(cudaLaunchKernelEx(&config, kernel, maps, p));
}

template <typename T>
void launch_mma(const MultiplyRows& p, Stream stream) {
  using Tile = MmaTile;
  const auto kernel = multiply_by_mma<T>;
  attention::cuda::allow_shared_bytes(kernel, Tile::kSharedBytes);
  attention::cuda::start(kernel, static_cast<unsigned>(TileOrder(p, Tile::kRows, Tile::kOutputs).count()),
                         Tile::kThreads, Tile::kSharedBytes, stream, p);
}

template <typename T>
void launch(const MultiplyRows& p, Stream stream) {
#ifdef SPARSEREEL_HOPPER
  int device = 0, major = 0, processors = 0;
  note(cudaGetDevice(&device));
  note(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  if (major == 9 && !p.by_mma && encode_map() != nullptr) return launch_wgmma<T>(p, processors, stream);
#endif
  launch_mma<T>(p, stream);
}

}  // namespace

const char* multiply_rows(const MultiplyRows& p, Stream stream) {
  if (p.rows == 0) return nullptr;
  return attention::cuda::launched(
      [&] { p.element == Element::fp16 ? launch<__half>(p, stream) : launch<__nv_bfloat16>(p, stream); });
}

}  // namespace sparsereel::models::cuda
