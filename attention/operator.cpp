// Implements attend(): checks the arguments, applies the prologue and runs the kernel of the mode.
#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <sstream>

#include "attention/attention.h"
#include "attention/core/check.h"
#include "attention/cpu/selection.h"
#include "attention/cpu_tensor.h"
#include "attention/cuda/launch.h"
#ifdef SPARSEREEL_CUDA
#include "attention/cuda_call.h"
#endif
#include "attention/prologue.h"
#include "attention/sdpa.h"
#include "attention/tensor_call.h"
#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

std::string describe(const at::Tensor& t) {
  std::ostringstream text;
  if (!t.defined()) return "undefined";
  text << t.sizes() << " of " << t.scalar_type() << " on " << t.device();
  return text.str();
}

[[noreturn]] void refuse(const std::string& cause, const std::string& remedy) {
  throw bad_input("attention: " + cause, remedy);
}

void check_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto refuse_all = [&](const std::string& requirement) {
    refuse("q is " + describe(q) + ", k " + describe(k) + ", v " + describe(v), requirement);
  };
  if (!q.defined() || !k.defined() || !v.defined() || q.dim() != 4 || k.dim() != 4 || v.dim() != 4)
    refuse_all("pass q [B, Nq, H, D], k and v [B, Nk, H, D]");
  if (k.sizes() != v.sizes() || q.size(0) != k.size(0) || q.size(3) != k.size(3))
    refuse_all("pass q [B, Nq, H, D], k and v [B, Nk, H, D] with equal B and D");
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || q.device() != k.device() ||
      q.device() != v.device())
    refuse_all("pass q, k and v of one dtype on one device");
  const auto dtype = q.scalar_type();
  if (dtype != at::kHalf && dtype != at::kBFloat16 && dtype != at::kFloat) refuse_all("use fp16, bf16 or fp32");
  if (q.size(3) < kMinHeadDim || q.size(3) > kMaxHeadDim) refuse_all("use a head_dim from 16 to 256");
  if (q.numel() == 0 || k.numel() == 0) refuse_all("pass at least one query, one key, one head and one batch entry");
  if (q.size(2) % k.size(2) != 0) refuse_all("pass k and v with as many heads as q, or a divisor of that number");
  if (q.stride(3) != 1 || k.stride(3) != 1 || v.stride(3) != 1) refuse_all("make the last dimension contiguous");
}

/// Returns key_lengths as a tensor on the CPU; undefined if there is no padding.
at::Tensor lengths_on_cpu(const Context& context) {
  return context.key_lengths.defined() ? context.key_lengths.to(at::kCPU).contiguous() : at::Tensor();
}

void check_lengths(const Context& context, int64_t batch, int64_t keys) {
  const at::Tensor& lengths = context.key_lengths;
  if (!lengths.defined()) return;
  if (lengths.dim() != 1 || lengths.size(0) != batch || lengths.scalar_type() != at::kLong)
    refuse("key_lengths is " + describe(lengths), "pass int64 [" + std::to_string(batch) + "]");
  check_key_lengths(lengths_on_cpu(context).const_data_ptr<int64_t>(), batch, keys);
}

void check_key_bias(const Context& context, const at::Tensor& k) {
  const at::Tensor& bias = context.key_bias;
  if (!bias.defined()) return;
  if (context.mode != Mode::full || context.block_map)
    refuse("key_bias was given in mode " + std::string(name(context.mode)) +
               (context.block_map ? " with a block_map" : ""),
           "use key_bias in mode full, without a block_map");
  if (bias.sizes() != at::IntArrayRef({k.size(0), k.size(1)}) || bias.scalar_type() != at::kFloat ||
      bias.device() != k.device())
    refuse("key_bias is " + describe(bias), "pass fp32 [" + std::to_string(k.size(0)) + ", " +
                                                std::to_string(k.size(1)) + "] on the device of the keys");
}

double scale_of(const at::Tensor& q, const Context& context) {
  return context.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
}

/// Returns the call without pointers to its tensors. Throws Error if the context asks for something impossible.
Call checked_call(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), keys = k.size(1);
  Call call = call_of(q, k, context, scale_of(q, context));
  Call with_prologue = call;
  with_prologue.prologue = which_exist(context.prologue);
  check(with_prologue);
  check_lengths(context, batch, keys);
  check_key_bias(context, k);
  check_prologue(context.prologue, q, k, context.text_tokens);
  if (!context.block_map) return call;
  const BlockMap& map = *context.block_map;
  const bool fits = map.batch == batch && map.heads == heads && map.query_blocks == blocks_of(queries) &&
                    map.key_blocks == blocks_of(keys) &&
                    static_cast<int64_t>(map.bits.size()) == batch * heads * map.query_blocks * map.key_blocks;
  const bool binary = std::all_of(map.bits.begin(), map.bits.end(), [](uint8_t bit) { return bit <= 1; });
  if (!fits || !binary)
    refuse("block_map does not fit the call, or has values other than 0 and 1",
           "pass bytes 0 or 1, [" + std::to_string(batch) + ", " + std::to_string(heads) + ", " +
               std::to_string(blocks_of(queries)) + ", " + std::to_string(blocks_of(keys)) + "]");
  return call;
}

Result run_on_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, Call call,
                  Workspace& workspace) {
  const at::Tensor queries = q.to(at::kFloat), keys = k.to(at::kFloat), values = v.to(at::kFloat);
  const at::Tensor out = at::empty(q.sizes(), queries.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor lse =
      context.return_lse ? at::empty({q.size(0), q.size(2), q.size(1)}, queries.options()) : at::Tensor();
  const at::Tensor lengths = lengths_on_cpu(context);
  call.q = rows_of(queries);
  call.k = rows_of(keys);
  call.v = rows_of(values);
  call.out = rows_of(out);
  call.lse = lse.defined() ? lse.mutable_data_ptr<float>() : nullptr;
  call.key_lengths = lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr;
  CpuExecutor executor(parallel_for);
  const RunCounts outcome = run_in(workspace, executor, call, at::kCPU, nullptr);
  Result result{.out = out.to(q.scalar_type()), .lse = lse, .statistics = {}, .kernel = executor.describe(call)};
  result.statistics.kept_blocks = outcome.counts.kept_blocks;
  result.statistics.skipped_pv_blocks = outcome.counts.skipped_pv_blocks;
  result.statistics.mean_blocks = outcome.counts.mean_blocks;
  result.statistics.sum_predicted_error = outcome.sum_predicted_error;
  result.statistics.predicted_tiles = outcome.predicted_tiles;
  return result;
}

Result run_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, const Call& call,
                const cpu::KernelParams& masks) {
#ifdef SPARSEREEL_CUDA
  if (has_few_keys_kernel(q, k, context)) {
    Result result = few_keys_on_cuda(q, k, v, context, call);
    result.statistics.kept_blocks = cpu::count_visible_blocks(masks);
    return result;
  }
#endif
  const auto [queries, keys] = apply_prologue(context.prologue, q, k, context.text_tokens);
  const SdpaResult sdpa_result = sdpa(queries, keys, v, context, call.scale);
  Result result{.out = sdpa_result.out, .lse = sdpa_result.lse, .statistics = {}, .kernel = "torch sdpa"};
  if (context.block_map) {
    BlockMap map = *context.block_map;
    cpu::keep_visible(masks, map);
    result.statistics.kept_blocks = cpu::count_blocks(map);
    result.statistics.mean_blocks = cpu::count_mean_blocks(masks, map);
    result.kernel += means_text(call);
  } else {
    result.statistics.kept_blocks = cpu::count_visible_blocks(masks);
  }
  return result;
}

/// Runs a call in any mode but full.
Result run_ours(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, const Call& call,
                Workspace& workspace) {
#ifdef SPARSEREEL_CUDA
  if (q.is_cuda()) return run_on_cuda(q, k, v, context, call, workspace);
#endif
  const auto [queries, keys] = apply_prologue(context.prologue, q, k, context.text_tokens);
  return run_on_cpu(queries, keys, v, context, call, workspace);
}

void add_error(const at::Tensor& out, const at::Tensor& full, Statistics& statistics) {
  const at::Tensor expected = full.to(at::kDouble);
  const double size = expected.abs().sum().item<double>();
  const double error = (out.to(at::kDouble) - expected).abs().sum().item<double>();
  statistics.sum_relative_l1 = size > 0 ? error / size : error;
  statistics.max_relative_l1 = statistics.sum_relative_l1;
}

}  // namespace

Result attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
              Workspace& workspace) {
  const auto start = std::chrono::steady_clock::now();
  check_tensors(q, k, v);
  const Call call = checked_call(q, k, context);
  if (const std::string reason = unsupported_reason(context.mode, q.device(), q.scalar_type()); !reason.empty())
    refuse("mode " + std::string(name(context.mode)) + " cannot run: " + reason, "use mode full");
  const at::Tensor lengths = lengths_on_cpu(context);
  const cpu::KernelParams masks = masks_of(call, lengths.defined() ? lengths.const_data_ptr<int64_t>() : nullptr);
  const bool too_short = context.mode == Mode::sparse && q.is_cuda() && is_too_short(call);
  const bool full = context.mode == Mode::full || too_short;
  Result result;
  if (!full) result = run_ours(q, k, v, context, call, workspace);
  if (full) {
    result = run_full(q, k, v, context, call, masks);
    if (too_short) result.kernel += ", which is faster than sparse attention on sequences this short";
  } else if (context.mode == Mode::check) {
    const auto [queries, keys] = apply_prologue(context.prologue, q, k, context.text_tokens);
    add_error(result.out, sdpa(queries, keys, v, context, call.scale).out, result.statistics);
  }
  result.statistics.total_blocks = cpu::count_visible_blocks(masks);
  result.statistics.calls = 1;
  // On a GPU the work has only been enqueued by now, so its time is not known.
  if (q.is_cpu())
    result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::optional<Result> attention_weights(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  check_tensors(q, k, k);
  [[maybe_unused]] const Call call = checked_call(q, k, context);
  if (context.mode != Mode::full)
    refuse("attention_weights() was called in mode " + std::string(name(context.mode)), "use mode full");
#ifdef SPARSEREEL_CUDA
  if (has_few_keys_kernel(q, k, context)) return weights_on_cuda(q, k, context, call);
#endif
  return std::nullopt;
}

void collect_counts(Workspace& workspace, std::vector<Statistics>& per_slot) {
  if (!workspace.counts.defined()) return;
  const at::Tensor counts = workspace.counts.cpu();
  workspace.counts.zero_();
  const auto rows = counts.accessor<int64_t, 2>();
  if (static_cast<int64_t>(per_slot.size()) < counts.size(0)) per_slot.resize(static_cast<size_t>(counts.size(0)));
  for (int64_t slot = 0; slot < counts.size(0); ++slot) {
    Statistics& statistics = per_slot[static_cast<size_t>(slot)];
    statistics.kept_blocks += rows[slot][cuda::kCountKept];
    statistics.skipped_pv_blocks += rows[slot][cuda::kCountSkippedPv];
    statistics.mean_blocks += rows[slot][cuda::kCountMeans];
    statistics.sum_predicted_error +=
        std::ldexp(static_cast<double>(rows[slot][cuda::kCountPredictedError]), -cuda::kErrorBits);
  }
}

std::string unsupported_reason(Mode mode, at::Device device, at::ScalarType dtype) {
  if (mode == Mode::full || device.is_cpu()) return {};
#ifdef SPARSEREEL_CUDA
  return cuda_unsupported_reason(device, dtype);
#else
  (void)dtype;
  return "this build has no CUDA attention kernels";
#endif
}

}  // namespace sparsereel::attention
