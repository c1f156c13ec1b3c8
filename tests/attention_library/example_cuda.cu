// example_cuda [BATCH HEADS TOKENS HEAD_DIM TOPK]: an example that replaces a program's attention on a GPU with the
// library's. Prints the difference of the two results, and the time of one call of the library.
#include <cuda_fp16.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

struct Shape {
  int64_t batch, heads, tokens, head_dim;
  int64_t size() const { return batch * tokens * heads * head_dim; }
};

static void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(status));
  std::exit(1);
}

// The program's attention: one thread per row, for the first `rows` queries of each head.
__global__ void own_attention(const __half* q, const __half* k, const __half* v, float* out, Shape s, int rows) {
  const int64_t row = s.heads * s.head_dim, b = blockIdx.z, h = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows) return;
  const auto at = [&](int64_t token) { return (b * s.tokens + token) * row + h * s.head_dim; };
  const auto score = [&](int64_t j) {
    float sum = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) sum += __half2float(q[at(i) + d]) * __half2float(k[at(j) + d]);
    return sum * rsqrtf(static_cast<float>(s.head_dim));
  };
  float* to = out + ((b * s.heads + h) * rows + i) * s.head_dim;
  float sum = 0;
  for (int64_t j = 0; j < s.tokens; ++j) {
    const float weight = expf(score(j));
    sum += weight;
    for (int64_t d = 0; d < s.head_dim; ++d) to[d] += weight * __half2float(v[at(j) + d]);
  }
  for (int64_t d = 0; d < s.head_dim; ++d) to[d] /= sum;
}

// The library's attention, which replaces it. Returns false if the call is too short to gain from the library; the
// program then keeps own_attention().
#include <sparsereel/attention.hpp>

static bool attention(__half* q, __half* k, __half* v, __half* out, const Shape& s, double topk, cudaStream_t stream) {
  static sparsereel::Attention library(0);
  static void* workspace = nullptr;
  static size_t bytes = 0;
  sparsereel::AttentionCall call(s.batch, s.tokens, s.heads, s.head_dim);
  call.element = SPARSEREEL_FP16;
  call.q.data = q;
  call.k.data = k;
  call.v.data = v;
  call.out.data = out;
  call.policy.all.topk = topk;
  if (const size_t needed = library.workspace_size(call); needed > bytes) {
    check(cudaFree(workspace));
    check(cudaMalloc(&workspace, bytes = needed));
  }
  return library.run(call, workspace, bytes, stream);
}

static __half* on_device(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<__half> values(shape.size());
  for (__half& x : values) x = __float2half(normal(generator));
  __half* data = nullptr;
  check(cudaMalloc(&data, values.size() * sizeof(__half)));
  check(cudaMemcpy(data, values.data(), values.size() * sizeof(__half), cudaMemcpyHostToDevice));
  return data;
}

int main(int argc, char** argv) {
  Shape shape{2, 30, 17776, 64};
  double topk = 0.5;
  if (argc == 6) {
    shape = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
    topk = std::atof(argv[5]);
  }
  __half *q = on_device(shape, 1), *k = on_device(shape, 2), *v = on_device(shape, 3), *out = on_device(shape, 4);
  cudaStream_t stream;
  cudaEvent_t begin, end;
  check(cudaStreamCreate(&stream));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  constexpr int kCalls = 50;
  for (int i = 0; i < 2 * kCalls; ++i) {
    if (i == kCalls) check(cudaEventRecord(begin, stream));
    if (attention(q, k, v, out, shape, topk, stream)) continue;
    std::printf("too short: own_attention() stays\n");
    return 0;
  }
  check(cudaEventRecord(end, stream));
  check(cudaStreamSynchronize(stream));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  std::printf("topk %g: %.3f ms a call\n", topk, milliseconds / kCalls);

  constexpr int rows = 64;
  const size_t compared = static_cast<size_t>(shape.batch * shape.heads * rows * shape.head_dim);
  float* own = nullptr;
  check(cudaMalloc(&own, compared * sizeof(float)));
  check(cudaMemset(own, 0, compared * sizeof(float)));
  const dim3 grid(1, static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.batch));
  own_attention<<<grid, rows>>>(q, k, v, own, shape, rows);
  std::vector<float> expected(compared);
  std::vector<__half> actual(shape.size());
  check(cudaMemcpy(expected.data(), own, compared * sizeof(float), cudaMemcpyDeviceToHost));
  check(cudaMemcpy(actual.data(), out, actual.size() * sizeof(__half), cudaMemcpyDeviceToHost));
  double error = 0, size = 0;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const float e = expected[((b * shape.heads + h) * rows + i) * shape.head_dim + d];
          const float a = __half2float(actual[((b * shape.tokens + i) * shape.heads + h) * shape.head_dim + d]);
          error += std::abs(a - e);
          size += std::abs(e);
        }
  std::printf("relative L1 %.3g\n", error / size);
}
