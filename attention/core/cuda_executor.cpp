// Runs a call on a GPU: fills in the kernels' parameters and enqueues the kernels.
#include "attention/core/check.h"
#include "attention/core/executor.h"
#include "attention/core/refusal.h"
#ifdef SPARSEREEL_CUDA
#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include "attention/core/cuda_params.h"
#include "attention/cuda/device.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/records.h"
#include "attention/cuda/scratch.h"
#include "hilbert/exact_text.h"
#endif

namespace sparsereel::attention {

#ifdef SPARSEREEL_CUDA
namespace {

constexpr size_t kScratchAlignment = 1024;
static_assert(kBlock == cuda::kRecord && kMostGpuTokens == int64_t{cuda::kRecord} << cuda::kBlockBits);
constexpr int64_t kLoad = 8;  // 16-bit elements that a thread loads at once: 16 aligned bytes

[[noreturn]] void refuse_unsupported(const std::string& cause, const std::string& remedy) {
  throw Refusal(SPARSEREEL_UNSUPPORTED, cause, remedy);
}

/// Returns forced_kernel(), or the best kernel for the GPU if none is forced. Calls with 16-bit arithmetic all use the
/// same kernel.
const cuda::KernelTraits& chosen_kernel(const Call& call, int device) {
  const int capability = cuda::compute_capability(device);
  check_capability(device, capability);
  const bool reads_rows = call.policy.arithmetic == 16;
  return cuda::traits_of(*cuda::choose_kernel(capability, static_cast<int>(call.head_dim), reads_rows,
                                              reads_rows ? std::string_view() : forced_kernel()));
}

cuda::HeadChoice head_choice(const HeadPolicy& head, bool every_block) {
  using Kind = cuda::HeadChoice::Kind;
  const bool dense = every_block || head.dense, by_block = head.selection == Selection::block_error;
  return {.topk = head.topk,
          .kind = dense                               ? Kind::dense
                  : head.selection == Selection::topk ? Kind::topk
                  : head.selection == Selection::cdf  ? Kind::cdf
                  : by_block                          ? Kind::block_error
                                                      : Kind::error,
          .cdf = static_cast<float>(head.cdf),
          .similarity = static_cast<float>(head.similarity),
          // If every block is computed, nothing is skipped, not even P.V.
          .pv_threshold = dense ? 32.0F : static_cast<float>(head.pv_threshold),
          .error = static_cast<float>(by_block ? head.block_error : head.error)};
}

/// The kernels' parameters for a call. If only sizes are needed, the call's pointers may be invalid, because they are
/// not read.
class CudaPlan {
 public:
  CudaPlan(const Call& call, int device)
      : call_(call), kernel_(chosen_kernel(call, device)), params_(cuda_params_of(call)) {
    check_kernels_take_it();
    check_gpu_sizes(call);
    fill_selection();
  }
  CudaPlan(const CudaPlan&) = delete;  // because params_ points to heads_
  CudaPlan& operator=(const CudaPlan&) = delete;

  const cuda::KernelParams& params() const { return params_; }
  cuda::Kernel kernel() const { return kernel_.kernel; }
  int64_t predicted_tiles() const { return predicted_tiles_; }

 private:
  void check_kernels_take_it() const {
    if (call_.element == Element::fp32)
      refuse_unsupported("GPU kernels do not support fp32 tensors", "pass fp16 or bf16");
    if (call_.head_dim % kLoad != 0)
      refuse_unsupported("head_dim is " + std::to_string(call_.head_dim) + ", which no GPU kernel supports",
                         "pad it to a multiple of 8 with zeros");
    if (!call_.prologue.is_empty() && call_.head_dim % (2 * kLoad) != 0)
      refuse_unsupported("GPU kernels do not apply a prologue if head_dim is " + std::to_string(call_.head_dim),
                         "apply it before the call, or use a head_dim that is a multiple of 16");
    if (!(call_.scale > 0))
      throw Refusal(SPARSEREEL_BAD_ARGUMENT, "scale is " + exact_text(call_.scale),
                    "pass a positive scale, which the CUDA kernels need");
    if (call_.out_scale != nullptr && !kernel_.writes_e4m3)
      refuse_unsupported("this kernel does not write an output of 8 bits",
                         "use a Hopper GPU, 8-bit arithmetic and a head_dim of at most 128");
  }

  void fill_selection() {
    using Kind = cuda::Selection::Kind;
    cuda::Selection& selection = params_.selection;
    const CallPolicy& policy = call_.policy;
    selection.rows = static_cast<int>(policy.selection_rows);
    const bool every_block = call_.is_dense();
    selection.kind = call_.map != nullptr ? Kind::map : every_block ? Kind::dense : Kind::predict;
    selection.map = call_.map;
    selection.map_rows = static_cast<int>(call_.map_rows);
    for (int64_t h = 0; h < call_.heads; ++h) heads_.push_back(head_choice(policy.head(h), every_block));
    selection.all = heads_.front();
    for (const cuda::HeadChoice& head : heads_) {
      const bool dense = head.kind == cuda::HeadChoice::Kind::dense;
      selection.similarity = selection.similarity || (!dense && head.similarity >= 0);
      selection.skips_pv = selection.skips_pv || head.pv_threshold < 32;
      selection.any_topk = selection.any_topk || head.kind == cuda::HeadChoice::Kind::topk;
      selection.any_block_error = selection.any_block_error || head.kind == cuda::HeadChoice::Kind::block_error;
    }
    bool alike = call_.part == nullptr || call_.part->alike;
    for (int64_t h = 1; h < call_.heads; ++h) alike = alike && policy.head(h) == policy.head(0);
    if (!alike) selection.heads = heads_.data();
    if (const HeadPart* part = call_.part; part != nullptr) {
      selection.first_head = static_cast<int>(part->first);
      selection.all_heads = static_cast<int>(part->all);
    }
    if (call_.mean_cell() > 0) fill_means();
  }

  void fill_means() {
    check_means();
    cuda::Selection& selection = params_.selection;
    selection.means = true;
    selection.by_error = selection.kind == cuda::Selection::Kind::predict && call_.policy.ranking == Ranking::error;
    if (!selection.by_error) return;
    const auto count_heads = [&](cuda::HeadChoice::Kind kind) {
      return std::count_if(heads_.begin(), heads_.end(),
                           [&](const cuda::HeadChoice& head) { return head.kind == kind; });
    };
    selection.predicts_error = call_.predicts_error || count_heads(cuda::HeadChoice::Kind::error) > 0;
    if (!selection.predicts_error) return;
    const int64_t predicting = params_.heads - count_heads(cuda::HeadChoice::Kind::dense);
    predicted_tiles_ = params_.batch * predicting * cuda::selection_tiles(params_);
  }

  void check_means() const {
    if (call_.policy.cell != cuda::kMeanCell)
      refuse_unsupported("GPU kernels do not support a cell of " + std::to_string(call_.policy.cell) + " tokens",
                         "set cell to " + std::to_string(cuda::kMeanCell));
    if (params_.keys > cuda::kMostMeanKeys)
      refuse_unsupported(
          "GPU kernels do not support means for dropped blocks of " + std::to_string(params_.keys) + " keys",
          "use at most " + std::to_string(cuda::kMostMeanKeys) + " keys, or set dropped to none");
  }

  const Call& call_;
  const cuda::KernelTraits& kernel_;
  int64_t predicted_tiles_ = 0;
  std::vector<cuda::HeadChoice> heads_;
  cuda::KernelParams params_;
};

void check_vectors(const StridedRows& rows, int64_t batch, int64_t tokens, int64_t heads, const char* name) {
  const bool aligned = reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
                       (batch == 1 || rows.batch_stride % kLoad == 0) &&
                       (tokens == 1 || rows.token_stride % kLoad == 0) && (heads == 1 || rows.head_stride % kLoad == 0);
  if (!aligned)
    refuse_unsupported("the rows of " + std::string(name) + " are not aligned to 16 bytes",
                       "align its data, and use strides that are multiples of 8 elements");
  if (tokens > 1 && rows.token_stride >= int64_t{1} << 31)
    refuse_unsupported("the tokens of " + std::string(name) + " are 2^31 or more elements apart",
                       "copy it to contiguous memory");
}

/// Throws Refusal if a pointer or stride does not suit the kernels' loads.
void check_alignment(const Call& call) {
  check_vectors(call.q, call.batch, call.queries, call.heads, "q");
  check_vectors(call.k, call.batch, call.keys, call.heads_of_keys(), "k");
  check_vectors(call.v, call.batch, call.keys, call.heads_of_keys(), "v");
  check_vectors(call.out, call.batch, call.queries, call.heads, "out");
  const CallPrologue& prologue = call.prologue;
  for (const void* data :
       {static_cast<const void*>(prologue.q_weight), static_cast<const void*>(prologue.q_bias),
        static_cast<const void*>(prologue.k_weight), static_cast<const void*>(prologue.k_bias),
        static_cast<const void*>(prologue.text_q_weight), static_cast<const void*>(prologue.text_k_weight),
        static_cast<const void*>(prologue.rotary_positions), static_cast<const void*>(prologue.rotary_frequencies),
        prologue.rotary_pairs})
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
      refuse_unsupported("a weight, bias, position or angle of the prologue is not aligned to 16 bytes", "align it");
}

/// Throws Refusal if `failure`, the message from CUDA, is not null.
void check_enqueued(const char* failure) {
  if (failure == nullptr) return;
  if (cuda::is_broken())
    throw Refusal(SPARSEREEL_EARLIER_CUDA_ERROR, "a CUDA call before this one failed: " + std::string(failure),
                  "find the call that failed, then restart the process");
  throw Refusal(SPARSEREEL_CUDA_ERROR, "the kernels did not start: " + std::string(failure),
                "report this with the sizes of the call");
}

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(int device, std::shared_ptr<const cuda::SideStreams> side) : device_(device), side_(std::move(side)) {}
  ~CudaExecutor() override {
    const cuda::CurrentDevice current(device_);
    side_.reset();
  }

  bool is_gpu() const override { return true; }

  size_t workspace_bytes(const Call& call) const override {
    const cuda::CurrentDevice current(device_);
    const CudaPlan plan(call, device_);
    return cuda::scratch_bytes(plan.params(), plan.kernel()) + kScratchAlignment;
  }

  RunCounts run(const Call& call, void* workspace, size_t bytes, void* stream) override {
    check_rows(call);
    check_alignment(call);
    void* scratch = aligned(call, workspace, bytes, kScratchAlignment);
    const cuda::CurrentDevice current(device_);
    const CudaPlan plan(call, device_);
    const auto steps = call.leaves_out_attention ? cuda::Steps::prepass : cuda::Steps::all;
    const std::lock_guard lock(mutex_);
    check_enqueued(cuda::attention(plan.params(), plan.kernel(), steps, scratch, *side_,
                                   static_cast<cuda::Stream>(stream), call.part));
    RunCounts outcome;
    outcome.predicted_tiles = plan.predicted_tiles();
    return outcome;
  }

  std::string describe(const Call& call) const override {
    const cuda::KernelTraits& kernel = chosen_kernel(call, device_);
    const std::string element = call.element == Element::fp16 ? "fp16" : "bf16";
    return "cuda " + (kernel.reads_rows ? element + " Q.K, " + element + " " : std::string("int8 Q.K, ")) +
           kernel.label + means_text(call) + blocks_text(call);
  }

 private:
  const int device_;
  std::shared_ptr<const cuda::SideStreams> side_;
  std::mutex mutex_;  // held during a call, because only one call at a time may use the side streams
};

}  // namespace

bool has_cuda_executor() {
  return true;
}

std::unique_ptr<Executor> make_cuda_executor(int device) {
  if (const std::string reason = cuda::unusable_reason(device); !reason.empty())
    throw Refusal(SPARSEREEL_NO_DEVICE, "GPU " + std::to_string(device) + " cannot be used: " + reason,
                  "use another GPU, or the CPU");
  check_capability(device, cuda::compute_capability(device));
  const cuda::CurrentDevice current(device);
  const char* failure = nullptr;
  std::shared_ptr<const cuda::SideStreams> side = cuda::make_side_streams(failure);
  check_enqueued(failure);
  return std::make_unique<CudaExecutor>(device, std::move(side));
}

bool writes_e4m3(const Call& call, int device) {
  return chosen_kernel(call, device).writes_e4m3;
}

#else

bool has_cuda_executor() {
  return false;
}

std::unique_ptr<Executor> make_cuda_executor(int device) {
  throw Refusal(SPARSEREEL_NO_DEVICE, "GPU " + std::to_string(device) + " is unusable, because this build has no CUDA",
                "install a CUDA toolkit and build again, or use the CPU");
}

bool writes_e4m3(const Call& /*call*/, int /*device*/) {
  return false;
}

#endif

}  // namespace sparsereel::attention
