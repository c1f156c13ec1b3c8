// The steps of a call in their order.
#include <map>

#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// A stream beside the caller's, and the events that tie the two together.
class SideStream {
 public:
  SideStream() {
    int least = 0, greatest = 0;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest);
    for (cudaEvent_t& event : events_) cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  ~SideStream() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  Stream stream() const { return stream_; }

  enum Point { kBegin, kKeys, kEnd };
  /// What `after` runs next waits for what `before` was given so far. Each point once a call.
  void order(Point point, Stream before, Stream after) const {
    cudaEventRecord(events_[point], before);
    cudaStreamWaitEvent(after, events_[point], 0);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[3] = {};
};

/// That of this thread for the current device.
const SideStream& side_stream() {
  thread_local std::map<int, SideStream> streams;
  int device = 0;
  cudaGetDevice(&device);
  return streams[device];
}

/// Everything but attention itself. Statistics, K and V stream through memory; Q's records and the selection, whose
/// steps wait for one another, run beside them.
void prepare(const Call& call, Kernel kernel) {
  const SideStream& side = side_stream();
  const Call beside{call.problem, call.sizes, call.buffers, side.stream()};
  const bool queries_need_statistics = call.problem.lse != nullptr;
  cudaMemsetAsync(call.buffers.longest, 0, sizeof(float) * 2 * call.sizes.batch_heads, call.stream);
  launch_token_moments(call);
  if (queries_need_statistics) launch_statistics(call);
  side.order(SideStream::kBegin, call.stream, side.stream());
  launch_quantise_queries(beside);
  if (!queries_need_statistics) launch_statistics(call);
  launch_quantise_keys(call);
  side.order(SideStream::kKeys, call.stream, side.stream());
  launch_select(beside);
  launch_lists(beside, tile_rows(kernel));
  kernel == Kernel::ampere ? launch_half_values(call) : launch_quantise_values(call);
  side.order(SideStream::kEnd, side.stream(), call.stream);
}

void attend(const Call& call, Kernel kernel) {
  switch (kernel) {
    case Kernel::hopper:
      return launch_hopper(call);
    case Kernel::ada:
      return launch_ada(call);
    case Kernel::ampere:
      return launch_ampere(call);
  }
}

}  // namespace

std::optional<Kernel> choose_kernel(int compute_capability, int head_dim) {
#ifdef SPARSEREEL_HOPPER
  if (compute_capability == 90 && head_dim <= 128) return Kernel::hopper;
#endif
  (void)head_dim;
  if (compute_capability >= 89) return Kernel::ada;
  if (compute_capability >= 80) return Kernel::ampere;
  return std::nullopt;
}

size_t scratch_bytes(const Problem& problem, Kernel kernel) {
  return Buffers(problem, Sizes(problem, kernel), nullptr).bytes;
}

const char* attention(const Problem& problem, Kernel kernel, Steps steps, void* scratch, Stream stream) {
  const Sizes sizes(problem, kernel);
  const Buffers buffers(problem, sizes, scratch);
  const Call call{problem, sizes, buffers, stream};
  return launched([&] {
    prepare(call, kernel);
    if (steps == Steps::all) attend(call, kernel);
  });
}

}  // namespace sparsereel::attention::cuda
