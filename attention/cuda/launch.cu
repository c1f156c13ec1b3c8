// Runs the steps of a call in order. Events connect the streams in which they run.
#include <iterator>

#include "attention/cuda/kernels.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda {

class SideStreams {
 public:
  /// Must be created inside launched().
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
  /// Makes work that is enqueued in `after` from now on wait for all work so far in `before`. A point may be used
  /// again, because a wait that is already enqueued refers to the earlier record of the event.
  void order(Point point, Stream before, Stream after) const {
    note(cudaEventRecord(events_[point], before));
    note(cudaStreamWaitEvent(after, events_[point], 0));
  }

 private:
  cudaStream_t selection_ = nullptr, values_ = nullptr;
  cudaEvent_t events_[kPoints] = {};
};

namespace {

void prepare_values(const LaunchContext& context) {
  if (context.kernel.reads_rows) return launch_sixteen_means(context);
  launch_quantize_values(context);
  launch_means_of_values(context);
}

/// Returns a function that sums counts over all ranks whose heads choose together; empty if no other rank has such
/// heads. The sum runs in the stream of the call, where the caller's other exchanges run.
AddUp adds_up(const LaunchContext& context, Stream selection, const SideStreams& side, const HeadPart* part) {
  const bool shares = context.sizes.budgets > 0 || context.sizes.length_sums > 0;
  if (part == nullptr || !part->shares_budget() || !shares) return {};
  return [&context, selection, &side, part](Numbers numbers) {
    side.order(SideStreams::kCounts, selection, context.stream);
    for (int i = 0; i < numbers.times; ++i) part->sum(numbers.first + i * numbers.apart, numbers.count);
    side.order(SideStreams::kCountsOfAll, context.stream, selection);
  };
}

/// Runs everything except attention itself. First come the statistics. Then the caller's stream makes the records of K.
/// Meanwhile the second stream makes the records of Q and then the selection, where each step waits for the one before.
/// The third stream has the lowest priority: it makes the records of V when the others leave the GPU idle.
void prepare(const LaunchContext& context, const SideStreams& side, const HeadPart* part) {
  const LaunchContext selection = context.in(side.selection()), values = context.in(side.values());
  note(cudaMemsetAsync(context.buffers.longest, 0,
                       sizeof(float) * (context.sizes.batch_heads + context.sizes.batch_kv_heads), context.stream));
  if (context.params.out_scale != nullptr)
    note(cudaMemsetAsync(context.params.out_scale, 0, sizeof(float) * context.params.batch, context.stream));
  if (context.sizes.budgets > 0)
    note(cudaMemsetAsync(context.buffers.budgets, 0, sizeof(Budget) * context.sizes.budgets, context.stream));
  if (context.sizes.length_sums > 0)
    note(
        cudaMemsetAsync(context.buffers.length_sums, 0, sizeof(LengthSum) * context.sizes.length_sums, context.stream));
  launch_moments(context.params, context.buffers.token_moments, context.stream);
  launch_statistics(context);
  side.order(SideStreams::kSelectionBegin, context.stream, selection.stream);
  side.order(SideStreams::kValuesBegin, context.stream, values.stream);
  if (context.buffers.k != nullptr) {
    launch_quantize_queries(selection);
    launch_quantize_keys(context);
    launch_means_of_keys(context);
  }
  side.order(SideStreams::kKeys, context.stream, selection.stream);
  launch_masses(selection);
  prepare_values(values);
  if (context.params.selection.by_error) side.order(SideStreams::kSpreads, values.stream, selection.stream);
  launch_select(selection, adds_up(context, selection.stream, side, part));
  launch_lists(selection);
  side.order(SideStreams::kValuesEnd, values.stream, context.stream);
  side.order(SideStreams::kSelectionEnd, selection.stream, context.stream);
}

void launch_sixteen(const LaunchContext& context) {
  context.params.element == Element::fp16 ? launch_sixteen_fp16(context) : launch_sixteen_bf16(context);
}

/// The functions that launch an attention kernel: one for whole tiles and, if the kernel splits tiles (shares.h), one
/// for the split tiles.
struct Launch {
  void (*whole)(const LaunchContext& context);
  void (*shared)(const LaunchContext& context) = nullptr;
};
constexpr Launch kLaunches[] = {{launch_hopper, launch_hopper_shared}, {launch_ada}, {launch_ampere}, {launch_sixteen}};
static_assert(std::size(kLaunches) == std::size(kKernels), "one for each kernel, in the order of Kernel");

/// Runs attention. The kernel for split tiles is enqueued in another stream, so that its CTAs start on multiprocessors
/// that have finished their whole tiles.
void attend(const LaunchContext& context, const SideStreams& side) {
  const Launch& launch = kLaunches[static_cast<int>(context.kernel.kernel)];
  const bool shares = context.sizes.shares.tiles > 0;
  if (shares) side.order(SideStreams::kPrepared, context.stream, side.values());
  launch.whole(context);
  if (!shares) return;
  launch.shared(context.in(side.values()));
  side.order(SideStreams::kSharedEnd, side.values(), context.stream);
}

bool can_run(const KernelTraits& kernel, int compute_capability, int head_dim) {
#ifdef SPARSEREEL_HOPPER
  const bool has_code = !kernel.needs_90a || compute_capability == 90;
#else
  const bool has_code = !kernel.needs_90a;
#endif
  return has_code && compute_capability >= kernel.least_capability && head_dim <= kernel.most_head_dim;
}

}  // namespace

std::optional<Kernel> choose_kernel(int compute_capability, int head_dim, bool reads_rows, std::string_view forced) {
  std::optional<Kernel> fastest;
  for (const KernelTraits& kernel : kKernels) {
    if (kernel.reads_rows != reads_rows || !can_run(kernel, compute_capability, head_dim)) continue;
    if (kernel.name == forced) return kernel.kernel;
    if (!fastest) fastest = kernel.kernel;
  }
  return fastest;
}

size_t scratch_bytes(const KernelParams& params, Kernel kernel) {
  const KernelTraits& traits = traits_of(kernel);
  return buffer_bytes(params, Sizes(params, traits), traits);
}

std::shared_ptr<const SideStreams> make_side_streams(const char*& failure) {
  std::shared_ptr<const SideStreams> side;
  failure = launched([&] { side = std::make_shared<SideStreams>(); });
  return failure == nullptr ? side : nullptr;
}

const char* attention(const KernelParams& params, Kernel kernel, Steps steps, void* scratch, const SideStreams& side,
                      Stream stream, const HeadPart* part) {
  if (params.key_bias != nullptr) return "only attend_few_keys() takes a key_bias";
  const KernelTraits& traits = traits_of(kernel);
  if (params.out_scale != nullptr && !traits.writes_e4m3) return "only Hopper's kernel writes e4m3";
  const Sizes sizes(params, traits);
  const Buffers buffers = buffers_in(scratch, params, sizes, traits);
  return launched([&] {
    const KernelParams on_device = launch_inputs(params, buffers, stream);
    const KernelParams ready = launch_rows(on_device, buffers, stream);
    const LaunchContext context{traits, ready, sizes, buffers, stream};
    prepare(context, side, part);
    if (steps == Steps::all) attend(context, side);
  });
}

}  // namespace sparsereel::attention::cuda
