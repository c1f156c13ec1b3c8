// The steps of a call in their order.
#include "attention/cuda/device.h"
#include "attention/cuda/kernels.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda {

class SideStreams {
 public:
  /// Within launched().
  SideStreams() {
    int least = 0, greatest = 0;
    note(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    note(cudaStreamCreateWithPriority(&selection_, cudaStreamNonBlocking, greatest));
    note(cudaStreamCreateWithPriority(&values_, cudaStreamNonBlocking, least));
    for (cudaEvent_t& event : events_) note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;
  ~SideStreams() {
    for (cudaEvent_t event : events_)
      if (event != nullptr) cudaEventDestroy(event);
    for (Stream stream : {selection_, values_})
      if (stream != nullptr) cudaStreamDestroy(stream);
  }

  Stream selection() const { return selection_; }
  Stream values() const { return values_; }

  enum Point {
    kSelectionBegin,
    kValuesBegin,
    kKeys,
    kSpreads,
    kCounts,
    kCountsOfAll,
    kSelectionEnd,
    kValuesEnd,
    kPrepared,
    kSharedEnd,
    kPoints
  };
  /// What `after` runs next waits for what `before` was given so far. Each point once a call, or once more after the
  /// former wait was enqueued.
  void order(Point point, Stream before, Stream after) const {
    note(cudaEventRecord(events_[point], before));
    note(cudaStreamWaitEvent(after, events_[point], 0));
  }

 private:
  cudaStream_t selection_ = nullptr, values_ = nullptr;
  cudaEvent_t events_[kPoints] = {};
};

namespace {

void prepare_values(const Call& call, Kernel kernel) {
  if (kernel == Kernel::sixteen) return launch_sixteen_means(call);
  kernel == Kernel::ampere ? launch_half_values(call) : launch_quantise_values(call);
  launch_means_of_values(call, kernel);
}

/// Where parts of the heads choose together. What they count is added up in the call's own stream, in which the
/// caller's exchanges run.
AddUp adds_up(const Call& call, Stream selection, const SideStreams& side, const HeadPart* part) {
  const bool shares = call.sizes.budgets > 0 || call.sizes.length_sums > 0;
  if (part == nullptr || !part->shares_budget() || !shares) return {};
  return [&call, selection, &side, part](Numbers numbers) {
    side.order(SideStreams::kCounts, selection, call.stream);
    for (int i = 0; i < numbers.times; ++i) part->sum(numbers.first + i * numbers.apart, numbers.count);
    side.order(SideStreams::kCountsOfAll, call.stream, selection);
  };
}

/// Everything but attention itself. After the statistics K streams through memory; Q's records and the selection, whose
/// steps wait for one another, run beside it, and V where those leave the GPU idle.
void prepare(const Call& call, Kernel kernel, const SideStreams& side, const HeadPart* part) {
  const Call selection{call.problem, call.sizes, call.buffers, side.selection()};
  const Call values{call.problem, call.sizes, call.buffers, side.values()};
  note(cudaMemsetAsync(call.buffers.longest, 0, sizeof(float) * (call.sizes.batch_heads + call.sizes.batch_kv_heads),
                       call.stream));
  if (call.problem.out_scale != nullptr)
    note(cudaMemsetAsync(call.problem.out_scale, 0, sizeof(float) * call.problem.batch, call.stream));
  if (call.sizes.budgets > 0)
    note(cudaMemsetAsync(call.buffers.budgets, 0, sizeof(Budget) * call.sizes.budgets, call.stream));
  if (call.sizes.length_sums > 0)
    note(cudaMemsetAsync(call.buffers.length_sums, 0, sizeof(LengthSum) * call.sizes.length_sums, call.stream));
  launch_moments(call.problem, call.buffers.token_moments, call.stream);
  launch_statistics(call);
  side.order(SideStreams::kSelectionBegin, call.stream, selection.stream);
  side.order(SideStreams::kValuesBegin, call.stream, values.stream);
  if (call.buffers.k != nullptr) {
    launch_quantise_queries(selection);
    launch_quantise_keys(call);
    launch_means_of_keys(call);
  }
  side.order(SideStreams::kKeys, call.stream, selection.stream);
  launch_masses(selection);
  prepare_values(values, kernel);
  if (call.problem.selection.by_error) side.order(SideStreams::kSpreads, values.stream, selection.stream);
  launch_select(selection, adds_up(call, selection.stream, side, part));
  launch_lists(selection, tile_rows(kernel));
  side.order(SideStreams::kValuesEnd, values.stream, call.stream);
  side.order(SideStreams::kSelectionEnd, selection.stream, call.stream);
}

/// The shared tiles wait beside the others for multiprocessors that are done.
void attend_on_hopper(const Call& call, const SideStreams& side) {
  if (call.sizes.shares.tiles == 0) return launch_hopper(call);
  side.order(SideStreams::kPrepared, call.stream, side.values());
  launch_hopper(call);
  launch_hopper_shared({call.problem, call.sizes, call.buffers, side.values()});
  side.order(SideStreams::kSharedEnd, side.values(), call.stream);
}

void attend(const Call& call, Kernel kernel, const SideStreams& side) {
  switch (kernel) {
    case Kernel::hopper:
      return attend_on_hopper(call, side);
    case Kernel::ada:
      return launch_ada(call);
    case Kernel::ampere:
      return launch_ampere(call);
    case Kernel::sixteen:
      return call.problem.element == Element::fp16 ? launch_sixteen_fp16(call) : launch_sixteen_bf16(call);
  }
}

}  // namespace

std::optional<Kernel> choose_kernel(int compute_capability, int head_dim) {
#ifdef SPARSEREEL_HOPPER
  if (compute_capability == 90 && head_dim <= 128) return Kernel::hopper;
#endif
  (void)head_dim;
  if (compute_capability >= kE4m3Capability) return Kernel::ada;
  if (compute_capability >= 80) return Kernel::ampere;
  return std::nullopt;
}

size_t scratch_bytes(const Problem& problem, Kernel kernel) {
  return Buffers(problem, Sizes(problem, kernel), kernel, nullptr).bytes;
}

std::shared_ptr<const SideStreams> make_side_streams(const char*& problem) {
  std::shared_ptr<const SideStreams> side;
  problem = launched([&] { side = std::make_shared<SideStreams>(); });
  return problem == nullptr ? side : nullptr;
}

const char* attention(const Problem& problem, Kernel kernel, Steps steps, void* scratch, const SideStreams& side,
                      Stream stream, const HeadPart* part) {
  if (problem.key_bias != nullptr) return "only attend_few_keys() takes a key_bias";
  if (problem.out_scale != nullptr && kernel != Kernel::hopper) return "only Hopper's kernel writes e4m3";
  const Sizes sizes(problem, kernel);
  const Buffers buffers(problem, sizes, kernel, scratch);
  return launched([&] {
    const Problem on_device = launch_inputs(problem, buffers, stream);
    const Problem ready = launch_rows(on_device, buffers, stream);
    const Call call{ready, sizes, buffers, stream};
    prepare(call, kernel, side, part);
    if (steps == Steps::all) attend(call, kernel, side);
  });
}

}  // namespace sparsereel::attention::cuda
