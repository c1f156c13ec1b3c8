// Runs the Hopper kernel's sparse attention at a video's size for a given time. Compares every result bit by bit with
// the first result of the same inputs. This finds faults that occur once in thousands of calls because of a race or a
// broken GPU. The calls are made in random order and find garbage in scratch memory; half of them run while other
// kernels make noise. The program stops when the time is over or after 20 mismatches, and exits with 1 if there were
// any. After a CUDA error it names the call and exits with 1.
// stress_attention SECONDS [TOKENS]     (default: 30000 tokens)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "attention/cuda/device.h"
#include "tests/gpu/attention_call.cuh"

namespace {

using namespace sparsereel::attention::cuda;

constexpr int kBlocks = 1024, kThreads = 256;  // for the kernels in this file
constexpr int kInputs = 3;
constexpr int kMostTogether = 16;  // largest number of calls between two waits for the GPU
constexpr int kMostMismatches = 20;
constexpr uint8_t kPoison = 0xFF;  // NaN in every format, -1 in integers

/// A kind of call. All kinds have the same heads x head_dim, so that they can use the same inputs.
struct Work {
  const char* name;
  int heads, head_dim;
  void (*set)(KernelParams&);
};

const Work works[] = {
    {"means by error, 24 heads of 128", 24, 128,
     [](KernelParams& p) {
       predict(p);
       ignore_similarity(p);
       keep_means(p);
     }},
    {"means by error with text, 48 heads of 64", 48, 64,
     [](KernelParams& p) {
       predict(p);
       ignore_similarity(p);
       keep_means(p);
       p.text_tokens = 226;
     }},
    {"means by mass, 24 heads of 128", 24, 128,  // with 30000 tokens, the last tiles are computed in parts
     [](KernelParams& p) {
       predict(p);
       ignore_similarity(p);
       p.selection.means = p.selection.any_topk = true;
     }},
    {"dropping, similarity, P.V skip, 48 heads of 64", 48, 64,
     [](KernelParams& p) {
       predict(p);
       p.selection.skips_pv = true;
       p.selection.all.pv_threshold = 15;
     }},
};
constexpr int kWorks = static_cast<int>(std::size(works));

/// How an output differs from the first one: the number of differing words of 16 bytes, and the index of one of them.
struct Difference {
  unsigned long long words, place;
};

__device__ int64_t thread_of_grid() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ int64_t threads_of_grid() {
  return int64_t{gridDim.x} * blockDim.x;
}

__global__ void compare(const uint4* actual, const uint4* expected, int64_t words, Difference* difference) {
  for (int64_t i = thread_of_grid(); i < words; i += threads_of_grid()) {
    const uint4 a = actual[i], e = expected[i];
    if (a.x == e.x && a.y == e.y && a.z == e.z && a.w == e.w) continue;
    atomicAdd(&difference->words, 1);
    difference->place = static_cast<unsigned long long>(i);
  }
}

__global__ void count_broken(const uint16_t* bf16, int64_t size, unsigned long long* broken) {
  for (int64_t i = thread_of_grid(); i < size; i += threads_of_grid())
    if ((bf16[i] & 0x7F80) == 0x7F80) atomicAdd(broken, 1);
}

__global__ void fill_with_bits(uint64_t* to, int64_t words, uint64_t seed) {
  for (int64_t i = thread_of_grid(); i < words; i += threads_of_grid()) to[i] = hash(seed + i);
}

/// Keeps multiprocessors and memory busy for `nanoseconds`.
__global__ void make_noise(uint64_t* memory, int64_t words, uint64_t nanoseconds) {
  const auto now = [] {
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  int64_t at = thread_of_grid();
  for (const uint64_t begin = now(); now() - begin < nanoseconds; at = (at + threads_of_grid()) % words)
    memory[at] = hash(memory[at]);
}

__global__ void note_end(volatile int64_t* ended, int64_t call) {
  *ended = call;
}

class Stress {
 public:
  explicit Stress(int tokens) : tokens_(tokens) {
    for (cudaStream_t* const stream : {&stream_, &noise_stream_})
      check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    check(cudaHostAlloc(&ended_, sizeof *ended_, cudaHostAllocMapped));
    *ended_ = 0;
    size_t most = 0;
    for (int work = 0; work < kWorks; ++work) most = std::max(most, scratch_bytes(params(work, 0), Kernel::hopper));
    scratch_ = std::make_unique<OnDevice<uint64_t>>(static_cast<int64_t>(most / sizeof(uint64_t)));
    // The gains lead to scores for which the softmax takes different code paths.
    for (int set = 0; set < kInputs; ++set) {
      const float gains[kInputs] = {1, 3, 12};
      fill_with_normals(inputs_[set].q, shape(0), 3 * set + 1, gains[set]);
      fill_with_normals(inputs_[set].k, shape(0), 3 * set + 2);
      fill_with_normals(inputs_[set].v, shape(0), 3 * set + 3);
    }
    check(cudaDeviceSynchronize());
    learn();
  }

  /// Makes several calls without waiting in between. Returns the number of calls whose result differs from the first
  /// result of the same inputs. A CUDA error ends the program.
  int run() {
    std::vector<StressCall> calls(1 + random_() % kMostTogether);
    check(cudaMemsetAsync(differences_.get(), 0, differences_.bytes(), stream_));
    for (StressCall& call : calls) {
      call = {++made_, static_cast<int>(random_() % kWorks), static_cast<int>(random_() % kInputs), random_() % 2 == 0};
      poison();
      if (call.noise) add_noise();
      if (const char* failure = attend(call)) settle(failure, calls);
      compare<<<kBlocks, kThreads, 0, stream_>>>(words(out_), words(*first_[call.work][call.inputs]), size_ / 8,
                                                 differences_.get() + (&call - calls.data()));
      note_end<<<1, 1, 0, stream_>>>(ended_, call.number);
    }
    settle(nullptr, calls);
    return report(calls);
  }

  int64_t made() const { return made_; }

 private:
  struct Tensors {
    OnDevice<uint16_t> q, k, v;
    explicit Tensors(int64_t size) : q(size), k(size), v(size) {}
  };
  struct StressCall {
    int64_t number;
    int work, inputs;
    bool noise;
  };

  Shape shape(int work) const { return {1, works[work].heads, tokens_, works[work].head_dim}; }

  KernelParams params(int work, int set) const {
    KernelParams p = params_of(shape(work), inputs_[set].q, inputs_[set].k, inputs_[set].v, out_);
    p.counts = counts_.get();
    works[work].set(p);
    return p;
  }

  const char* attend(const StressCall& call) const {
    return attention(params(call.work, call.inputs), Kernel::hopper, Steps::all, scratch_->get(), *side_, stream_);
  }

  static const uint4* words(const OnDevice<uint16_t>& tensor) { return reinterpret_cast<const uint4*>(tensor.get()); }

  /// Computes the first results, which later calls must match. Scratch memory is zero. Outputs start as NaN, so that an
  /// element that no kernel writes is noticed.
  void learn() {
    const OnDevice<unsigned long long> broken(1);
    check(cudaMemsetAsync(broken.get(), 0, broken.bytes(), stream_));
    for (int work = 0; work < kWorks; ++work) {
      for (int set = 0; set < kInputs; ++set) {
        check(cudaMemsetAsync(scratch_->get(), 0, scratch_->bytes(), stream_));
        check(cudaMemsetAsync(out_.get(), kPoison, out_.bytes(), stream_));
        const StressCall call{0, work, set, false};
        settle(attend(call), {call});
        count_broken<<<kBlocks, kThreads, 0, stream_>>>(out_.get(), out_.size(), broken.get());
        first_[work][set] = std::make_unique<OnDevice<uint16_t>>(size_);
        check(cudaMemcpyAsync(first_[work][set]->get(), out_.get(), out_.bytes(), cudaMemcpyDeviceToDevice, stream_));
        check(cudaStreamSynchronize(stream_));
      }
    }
    unsigned long long found = 0;
    check(cudaMemcpy(&found, broken.get(), sizeof found, cudaMemcpyDeviceToHost));
    if (found > 0) check("the first results are not all finite");
  }

  /// Fills the output with NaN and scratch memory with garbage. Does not check for errors, because attend() does.
  void poison() {
    cudaMemsetAsync(out_.get(), kPoison, out_.bytes(), stream_);
    if (random_() % 2 == 0) {
      cudaMemsetAsync(scratch_->get(), kPoison, scratch_->bytes(), stream_);
    } else {
      fill_with_bits<<<kBlocks, kThreads, 0, stream_>>>(scratch_->get(), scratch_->size(), random_());
    }
  }

  void add_noise() {
    const auto blocks = static_cast<unsigned>(1 + random_() % 128);
    make_noise<<<blocks, kThreads, 0, noise_stream_>>>(noise_.get(), noise_.size(), 10000 + random_() % 1000000);
  }

  int report(const std::vector<StressCall>& calls) const {
    Difference differences[kMostTogether];
    check(cudaMemcpy(differences, differences_.get(), differences_.bytes(), cudaMemcpyDeviceToHost));
    int mismatches = 0;
    for (const StressCall& call : calls) {
      const Difference& difference = differences[&call - calls.data()];
      if (difference.words == 0) continue;
      ++mismatches;
      const Shape its = shape(call.work);
      const auto element = static_cast<int64_t>(difference.place) * 8;
      std::printf("%llu words of 16 bytes differ, for example in head %lld at token %lld, in ", difference.words,
                  static_cast<long long>(element % its.row() / its.head_dim),
                  static_cast<long long>(element / its.row()));
      print(call);
    }
    return mismatches;
  }

  /// Waits for calls. `failure` is the error message of the last call, or null. After an error, prints it together with
  /// the first call that did not end, and exits.
  void settle(const char* failure, const std::vector<StressCall>& calls) const {
    const cudaError_t status = cudaDeviceSynchronize();
    if (status != cudaSuccess) failure = cudaGetErrorString(status);
    if (failure == nullptr) return;
    const int64_t ended = std::max<int64_t>(*ended_ - calls.front().number + 1, 0);
    std::printf("%s in ", failure);
    print(calls[std::min<size_t>(ended, calls.size() - 1)]);
    std::exit(1);
  }

  static void print(const StressCall& call) {
    std::printf("call %lld: %s, inputs %d%s\n", static_cast<long long>(call.number), works[call.work].name, call.inputs,
                call.noise ? ", with noise" : "");
    std::fflush(stdout);
  }

  const int tokens_;
  std::mt19937 random_{1};
  int64_t made_ = 0;
  volatile int64_t* ended_ = nullptr;  // number of the last call that has ended; the GPU writes it
  cudaStream_t stream_ = nullptr, noise_stream_ = nullptr;
  const int64_t size_ = shape(0).size();
  const Tensors inputs_[kInputs] = {Tensors(size_), Tensors(size_), Tensors(size_)};
  const OnDevice<uint16_t> out_{size_};
  std::unique_ptr<OnDevice<uint16_t>> first_[kWorks][kInputs];
  const OnDevice<uint64_t> noise_{int64_t{1} << 24};  // more than the L2 cache holds
  const OnDevice<uint64_t> counts_{std::vector<uint64_t>(kCounts)};
  const OnDevice<Difference> differences_{int64_t{kMostTogether}};
  std::unique_ptr<OnDevice<uint64_t>> scratch_;
  const std::shared_ptr<const SideStreams> side_ = own_side_streams();
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 30000;
  if (argc > 3 || seconds <= 0 || tokens < 1000) {
    std::fprintf(stderr, "usage: stress_attention SECONDS [TOKENS], where TOKENS is at least 1000\n");
    return 2;
  }
  cudaDeviceProp gpu{};
  check(cudaGetDeviceProperties(&gpu, 0));
  if (choose_kernel(compute_capability(0), 128) != Kernel::hopper) check("this test needs an H100 or H200");
  std::printf("%s, UUID ", gpu.name);
  for (const char byte : gpu.uuid.bytes) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf(", %d multiprocessors; %d tokens\n", gpu.multiProcessorCount, tokens);
  std::fflush(stdout);

  Stress stress(tokens);
  int64_t mismatches = 0;
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> time(seconds);
  while (mismatches < kMostMismatches && std::chrono::steady_clock::now() - begin < time) mismatches += stress.run();
  std::printf("%lld calls, %lld mismatches\n", static_cast<long long>(stress.made()),
              static_cast<long long>(mismatches));
  return mismatches == 0 ? 0 : 1;
}
