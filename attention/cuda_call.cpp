// Runs attention calls on tensors with the CUDA kernels: passes pointers and strides of the tensors to them.
#include "attention/cuda_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "attention/core/cuda_params.h"
#include "attention/cuda/device.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/records.h"
#include "attention/cuda_binding.h"
#include "attention/cuda_tensors.h"
#include "attention/prologue.h"
#include "attention/prologue_call.h"
#include "attention/tensor_call.h"

namespace sparsereel::attention {
namespace {

bool repeats_elements(const at::Tensor& x) {
  for (int64_t axis = 0; axis < x.dim(); ++axis)
    if (x.size(axis) > 1 && x.stride(axis) == 0) return true;
  return false;
}

/// Returns an uninitialized output, in e4m3 or in q's dtype.
at::Tensor empty_output(const at::Tensor& q, at::IntArrayRef sizes, bool e4m3) {
  const auto options = q.options().memory_format(at::MemoryFormat::Contiguous);
  return at::empty(sizes, e4m3 ? options.dtype(at::kFloat8_e4m3fn) : options);
}

/// Returns the prologue with pointers in place of tensors. If the prologue has rotary_pairs, the tables are left out,
/// because kernels do not need them.
CallPrologue prologue_of(const Prologue& from, Kept& kept) {
  Prologue needed = from;
  if (from.rotary_pairs.defined()) needed.rotary_cos = needed.rotary_sin = at::Tensor();
  return with_arrays<CallPrologue>(
      needed, [&](const at::Tensor& array) { return kept.pointer(array); },
      from.rotary_pairs.defined() ? from.rotary_pairs.const_data_ptr() : nullptr);
}

/// Returns this thread's executor for a GPU. The executor lives as long as the thread, so that its streams and events
/// are created only once.
Executor& executor_of(at::Device device) {
  thread_local std::map<int, std::unique_ptr<Executor>> executors;
  std::unique_ptr<Executor>& executor = executors[device.index()];
  if (executor == nullptr) executor = make_cuda_executor(device.index());
  return *executor;
}

/// A call and the tensors that its pointers refer to. The tensors stay alive until the kernels are enqueued.
class CudaCall {
 public:
  CudaCall(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, const Call& call,
           Workspace& workspace)
      : workspace_(workspace), head_dim_(q.size(3)), call_(call) {
    // The kernels apply the prologue only if head_dim is a multiple of 16. For other sizes torch applies it first.
    const bool fuses_prologue = head_dim_ % (2 * kVector) == 0;
    const QueriesAndKeys ready =
        fuses_prologue ? QueriesAndKeys{q, k} : apply_prologue(context.prologue, q, k, context.text_tokens);
    if (fuses_prologue) call_.prologue = prologue_of(context.prologue, kept_);
    q_ = loadable(ready.q);
    k_ = loadable(ready.k);
    v_ = loadable(v);
    call_.head_dim = q_.size(3);
    call_.element = element_of(q);
    make_outputs(context);
    if (context.key_lengths.defined()) lengths_ = context.key_lengths.to(q.device()).contiguous();
    if (context.block_map) map_ = at::tensor(at::ArrayRef<uint8_t>(context.block_map->bits), at::kByte).to(q.device());
    point(context);
  }

  Result run() {
    Executor& executor = executor_of(q_.device());
    Result result;
    result.statistics.predicted_tiles =
        run_in(workspace_, executor, call_, q_.device(), current_stream(q_.device())).predicted_tiles;
    result.out = out_.size(3) == head_dim_ ? out_ : out_.narrow(3, 0, head_dim_);
    result.out_scale = out_scale_;
    result.lse = lse_;
    result.kernel = executor.describe(call_);
    return result;
  }

 private:
  void make_outputs(const Context& context) {
    // The error that Mode::check reports must not include the rounding of the output.
    const bool e4m3 = context.takes_e4m3 && context.mode != Mode::check && writes_e4m3(call_, q_.device().index());
    const auto floats = q_.options().dtype(at::kFloat);
    const bool over_q = context.may_overwrite_q && !e4m3 && context.mode != Mode::check && !repeats_elements(q_);
    out_ = over_q ? q_ : empty_output(q_, q_.sizes(), e4m3);
    if (e4m3) out_scale_ = at::empty({q_.size(0)}, floats);
    if (context.return_lse) lse_ = at::empty({q_.size(0), q_.size(2), q_.size(1)}, floats);
  }

  void point(const Context& context) {
    call_.q = rows_of(q_);
    call_.k = rows_of(k_);
    call_.v = rows_of(v_);
    call_.out = rows_of(out_);
    call_.out_scale = pointer_of(out_scale_);
    call_.lse = pointer_of(lse_);
    call_.key_lengths = lengths_.defined() ? lengths_.const_data_ptr<int64_t>() : nullptr;
    call_.map = map_.defined() ? map_.const_data_ptr<uint8_t>() : nullptr;
    call_.counts = reinterpret_cast<uint64_t*>(counts_of(context.slot).data_ptr<int64_t>());
  }

  at::Tensor counts_of(int64_t slot) {
    at::Tensor& counts = workspace_.counts;
    if (!counts.defined() || counts.device() != q_.device() || counts.size(0) <= slot) {
      const at::Tensor more = at::zeros({slot + 1, cuda::kCounts}, q_.options().dtype(at::kLong));
      if (counts.defined() && counts.device() == q_.device()) more.narrow(0, 0, counts.size(0)).copy_(counts);
      counts = more;
    }
    return counts[slot];
  }

  Workspace& workspace_;
  const int64_t head_dim_;
  Call call_;
  at::Tensor q_, k_, v_, out_, out_scale_, lse_, lengths_, map_;
  Kept kept_;
};

}  // namespace

Result run_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                   const Call& call, Workspace& workspace) {
  const c10::DeviceGuard guard(q.device());
  return CudaCall(q, k, v, context, call, workspace).run();
}

bool has_few_keys_kernel(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  const Prologue& prologue = context.prologue;
  const bool plain = !context.causal && !context.key_lengths.defined() && !context.block_map && !context.return_lse;
  const bool normed = prologue.norm == Prologue::Norm::rms && prologue.across_heads && !prologue.q_bias.defined() &&
                      !prologue.k_bias.defined();
  if (!is_half_on_cuda(q) || !plain || prologue.rotates() || !(normed || prologue.norm == Prologue::Norm::none) ||
      q.size(2) != k.size(2))
    return false;
  const c10::DeviceGuard guard(q.device());
  return k.size(1) <= cuda::most_few_keys(static_cast<int>(q.size(3)));
}

namespace {

/// Runs a call for which has_few_keys_kernel() is true. The kernel writes to the tensors result.out and, if defined,
/// result.out_scale; other fields of `result` are not used.
template <typename Run>
void run_few_keys(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, Call call,
                  Result& result, const Run& run) {
  Kept kept;
  const at::Tensor queries = loadable(q), keys = loadable(k), values = loadable(v);
  call.element = element_of(q);
  call.q = rows_of(queries);
  call.k = rows_of(keys);
  call.v = rows_of(values);
  call.out = rows_of(result.out);
  call.out_scale = pointer_of(result.out_scale);
  call.prologue = prologue_of(context.prologue, kept);
  cuda::KernelParams params = cuda_params_of(call);
  params.key_bias = kept.pointer(context.key_bias);
  const at::Tensor moments = moments_for(q.size(0) * (q.size(1) + k.size(1)), params.prologue, q);
  check_launch(run(params, pointer_of(moments), current_stream(q.device())), "cross-attention");
}

bool writes_e4m3(const Context& context, const at::Tensor& q) {
  return context.takes_e4m3 && cuda::compute_capability(q.device().index()) >= cuda::kE4m3Capability;
}

}  // namespace

Result few_keys_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                        const Call& call) {
  const c10::DeviceGuard guard(q.device());
  const bool e4m3 = writes_e4m3(context, q);
  Result result{.out = empty_output(q, q.sizes(), e4m3),
                .out_scale = e4m3 ? at::empty({q.size(0)}, q.options().dtype(at::kFloat)) : at::Tensor(),
                .lse = {},
                .statistics = {},
                .kernel = "cuda, all keys in shared memory"};
  run_few_keys(q, k, v, context, call, result, cuda::attend_few_keys);
  return result;
}

std::optional<Result> weights_on_cuda(const at::Tensor& q, const at::Tensor& k, const Context& context,
                                      const Call& call) {
  if (k.size(1) > cuda::kMostWeighedKeys) return std::nullopt;
  const c10::DeviceGuard guard(q.device());
  const bool e4m3 = writes_e4m3(context, q);
  const int64_t padded = (k.size(1) + kVector - 1) / kVector * kVector;
  Result result{
      .out = empty_output(q, {q.size(0), q.size(1), q.size(2), padded}, e4m3),
      .out_scale = e4m3 ? at::full({q.size(0)}, 1 / cuda::kE4m3Max, q.options().dtype(at::kFloat)) : at::Tensor(),
      .lse = {},
      .statistics = {},
      .kernel = "cuda, weights of all keys"};
  run_few_keys(q, k, k, context, call, result, cuda::weigh_few_keys);
  return result;
}

at::Tensor gather_on_cuda(const at::Tensor& x, const at::Tensor& index) {
  const c10::DeviceGuard guard(x.device());
  at::Tensor out = at::empty({x.size(0), index.size(0), x.size(2)}, x.options());
  const int64_t size = x.element_size();
  const char* error = cuda::gather_rows(
      x.const_data_ptr(), x.stride(0) * size, x.stride(1) * size, index.const_data_ptr<int64_t>(),
      out.mutable_data_ptr(), out.stride(0) * size, out.stride(1) * size, static_cast<int>(x.size(0)),
      static_cast<int>(index.size(0)), static_cast<int>(x.size(2) * size), current_stream(x.device()));
  check_launch(error, "gather");
  return out;
}

std::string cuda_unsupported_reason(at::Device device, at::ScalarType dtype) {
  if (dtype != at::kHalf && dtype != at::kBFloat16)
    return "the CUDA kernels take fp16 or bf16, not " + std::string(c10::toString(dtype));
  const int capability = cuda::compute_capability(device.has_index() ? device.index() : 0);
  if (!cuda::choose_kernel(capability, 64))
    return "the CUDA kernels need compute capability 8.0 or newer, but this GPU has " +
           std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  return {};
}

}  // namespace sparsereel::attention
