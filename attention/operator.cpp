// attend(): checks what it is given, applies the prologue, and runs the mode's kernel.
#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <sstream>

#include "attention/attention.h"
#include "attention/cpu/block_sparse.h"
#include "attention/cpu/selection.h"
#include "attention/cpu_tensor.h"
#include "attention/cuda/launch.h"
#ifdef SPARSEREEL_CUDA
#include "attention/cuda_call.h"
#endif
#include "attention/prologue.h"
#include "attention/sdpa.h"
#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

constexpr int64_t kMinHeadDim = 16, kMaxHeadDim = 256;

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
  if (k.sizes() != v.sizes() || q.size(0) != k.size(0) || q.size(2) != k.size(2) || q.size(3) != k.size(3))
    refuse_all("pass q [B, Nq, H, D], k and v [B, Nk, H, D] with equal B, H and D");
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || q.device() != k.device() ||
      q.device() != v.device())
    refuse_all("pass q, k and v of one dtype on one device");
  const auto dtype = q.scalar_type();
  if (dtype != at::kHalf && dtype != at::kBFloat16 && dtype != at::kFloat) refuse_all("use fp16, bf16 or fp32");
  if (q.size(3) < kMinHeadDim || q.size(3) > kMaxHeadDim) refuse_all("use a head_dim from 16 to 256");
  if (q.numel() == 0 || k.numel() == 0) refuse_all("pass at least one query, one key, one head and one batch entry");
  if (q.stride(3) != 1 || k.stride(3) != 1 || v.stride(3) != 1) refuse_all("make the last dimension contiguous");
}

void check_key_lengths(const at::Tensor& lengths, int64_t batch, int64_t keys) {
  if (!lengths.defined()) return;
  if (lengths.dim() != 1 || lengths.size(0) != batch || lengths.scalar_type() != at::kLong)
    refuse("key_lengths is " + describe(lengths), "pass int64 [" + std::to_string(batch) + "]");
  if (lengths.min().item<int64_t>() < 0 || lengths.max().item<int64_t>() > keys)
    refuse("key_lengths reach from " + std::to_string(lengths.min().item<int64_t>()) + " to " +
               std::to_string(lengths.max().item<int64_t>()),
           "keep them from 0 to the " + std::to_string(keys) + " keys");
}

void check_key_bias(const Context& context, const at::Tensor& k) {
  const at::Tensor& bias = context.key_bias;
  if (!bias.defined()) return;
  if (context.mode != Mode::full || context.block_map)
    refuse("key_bias in mode " + std::string(name(context.mode)) + (context.block_map ? " with a block_map" : ""),
           "use it in mode full, without a block_map");
  if (bias.sizes() != at::IntArrayRef({k.size(0), k.size(1)}) || bias.scalar_type() != at::kFloat ||
      bias.device() != k.device())
    refuse("key_bias is " + describe(bias), "pass fp32 [" + std::to_string(k.size(0)) + ", " +
                                                std::to_string(k.size(1)) + "] on the device of the keys");
}

void check_context(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  const int64_t batch = q.size(0), queries = q.size(1), heads = q.size(2), keys = k.size(1);
  validate(context.policy);
  if (const auto given = std::ssize(context.policy.heads); given != 0 && given != heads)
    refuse("the policy has " + std::to_string(given) + " heads, q has " + std::to_string(heads),
           "pass one policy a head, or none");
  if (context.text_tokens < 0 || context.text_tokens > std::min(queries, keys))
    refuse("text_tokens is " + std::to_string(context.text_tokens), "keep it from 0 to the number of tokens");
  if (context.scale && !std::isfinite(*context.scale)) refuse("scale is not finite", "pass a finite scale");
  check_key_lengths(context.key_lengths, batch, keys);
  check_key_bias(context, k);
  check_prologue(context.prologue, q, k, context.text_tokens);
  if (!context.block_map) return;
  const BlockMap& map = *context.block_map;
  const bool fits = map.batch == batch && map.heads == heads && map.query_blocks == blocks_of(queries) &&
                    map.key_blocks == blocks_of(keys) &&
                    static_cast<int64_t>(map.bits.size()) == batch * heads * map.query_blocks * map.key_blocks;
  const bool binary = std::all_of(map.bits.begin(), map.bits.end(), [](uint8_t bit) { return bit <= 1; });
  if (!fits || !binary)
    refuse("block_map does not fit", "pass bytes 0 or 1, [" + std::to_string(batch) + ", " + std::to_string(heads) +
                                         ", " + std::to_string(blocks_of(queries)) + ", " +
                                         std::to_string(blocks_of(keys)) + "]");
}

/// One call on the CPU: fp32 tensors, the problem that points into them, and its head policies.
class CpuCall {
 public:
  CpuCall(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale)
      : context_(context),
        dtype_(q.scalar_type()),
        q_(q.to(at::kFloat)),
        k_(k.to(at::kFloat)),
        v_(v.to(at::kFloat)),
        out_(at::empty(q.sizes(), q_.options().memory_format(at::MemoryFormat::Contiguous))) {
    if (context.return_lse) lse_ = at::empty({q.size(0), q.size(2), q.size(1)}, q_.options());
    if (context.key_lengths.defined()) lengths_ = context.key_lengths.to(at::kCPU).contiguous();
    problem_ = {.batch = q.size(0),
                .heads = q.size(2),
                .queries = q.size(1),
                .keys = k.size(1),
                .head_dim = q.size(3),
                .q = const_view(q_),
                .k = const_view(k_),
                .v = const_view(v_),
                .out = mutable_view(out_),
                .lse = lse_.defined() ? lse_.mutable_data_ptr<float>() : nullptr,
                .scale = scale,
                .text_tokens = context.text_tokens,
                .causal = context.causal,
                .key_lengths = lengths_.defined() ? lengths_.const_data_ptr<int64_t>() : nullptr,
                .mean_cell = context.mean_cell()};
    for (int64_t h = 0; h < problem_.heads; ++h) heads_.push_back(context.policy.head(h));
  }

  const cpu::Problem& problem() const { return problem_; }

  cpu::Prediction choose_blocks() const {
    if (context_.block_map) {
      cpu::Prediction given{.map = *context_.block_map, .sum_error = 0, .tiles = 0};
      cpu::keep_visible(problem_, given.map);
      return given;
    }
    if (context_.is_dense()) return {.map = cpu::visible_blocks(problem_), .sum_error = 0, .tiles = 0};
    const CallPolicy& policy = context_.policy;
    return cpu::predict_blocks(problem_, {.heads = heads_, .rows = policy.selection_rows, .ranking = policy.ranking},
                               parallel_for);
  }

  Result run(Workspace& workspace) const {
    const cpu::Prediction blocks = choose_blocks();
    // With every block asked for nothing is skipped, P.V included.
    std::vector<double> thresholds;
    for (const HeadPolicy& head : heads_)
      thresholds.push_back(context_.is_dense() || head.dense ? cpu::kNeverSkip : head.pv_threshold);
    const auto arithmetic = context_.mode == Mode::quantized ? cpu::Arithmetic::int8 : cpu::Arithmetic::exact;
    const cpu::TileKernel& kernel = cpu::chosen_tile_kernel();
    float* scratch = reserve(workspace, cpu::block_sparse_scratch_floats(problem_, arithmetic));
    const cpu::Counts counts =
        cpu::block_sparse_attention(problem_, blocks.map, thresholds, arithmetic, kernel, scratch, parallel_for);
    Result result{.out = out_.to(dtype_), .lse = lse_, .statistics = {}, .kernel = describe(kernel)};
    result.statistics.kept_blocks = counts.kept_blocks;
    result.statistics.skipped_pv_blocks = counts.skipped_pv_blocks;
    result.statistics.mean_blocks = counts.mean_blocks;
    result.statistics.sum_predicted_error = blocks.sum_error;
    result.statistics.predicted_tiles = blocks.tiles;
    return result;
  }

 private:
  static float* reserve(Workspace& workspace, int64_t floats) {
    at::Tensor& scratch = workspace.scratch;
    if (!scratch.defined() || !scratch.is_cpu() || scratch.scalar_type() != at::kFloat || scratch.numel() < floats)
      scratch = at::empty({floats}, at::kFloat);
    return scratch.mutable_data_ptr<float>();
  }

  std::string describe(const cpu::TileKernel& kernel) const {
    const bool int8 = context_.mode == Mode::quantized;
    std::ostringstream text;
    text << (int8 ? "cpu int8 and e4m3 emulated in fp32" : "cpu block-sparse fp32") << " (" << kernel.name << ")";
    if (context_.block_map) {
      text << ", the caller's block map";
    } else if (!int8 && context_.is_dense()) {
      text << ", every block";
    }
    return text.str() + context_.means_text();
  }

  const Context& context_;
  at::ScalarType dtype_;
  at::Tensor q_, k_, v_, out_, lse_, lengths_;
  cpu::Problem problem_;
  std::vector<HeadPolicy> heads_;
};

/// What decides which blocks hold a visible pair, and which have means.
cpu::Problem masks_of(const at::Tensor& q, const at::Tensor& k, const Context& context, const at::Tensor& cpu_lengths) {
  return {.batch = q.size(0),
          .heads = q.size(2),
          .queries = q.size(1),
          .keys = k.size(1),
          .head_dim = q.size(3),
          .text_tokens = context.text_tokens,
          .causal = context.causal,
          .key_lengths = cpu_lengths.defined() ? cpu_lengths.const_data_ptr<int64_t>() : nullptr,
          .mean_cell = context.mean_cell()};
}

Result run_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale,
                const cpu::Problem& masks) {
#ifdef SPARSEREEL_CUDA
  if (has_few_keys_kernel(q, k, context)) {
    Result result = few_keys_on_cuda(q, k, v, context, scale);
    result.statistics.kept_blocks = cpu::count_visible_blocks(masks);
    return result;
  }
#endif
  const auto [queries, keys] = apply_prologue(context.prologue, q, k);
  const SdpaResult sdpa_result = sdpa(queries, keys, v, context, scale);
  Result result{.out = sdpa_result.out, .lse = sdpa_result.lse, .statistics = {}, .kernel = "torch sdpa"};
  if (context.block_map) {
    BlockMap map = *context.block_map;
    cpu::keep_visible(masks, map);
    result.statistics.kept_blocks = cpu::count_blocks(map);
    result.statistics.mean_blocks = cpu::count_mean_blocks(masks, map);
    result.kernel += context.means_text();
  } else {
    result.statistics.kept_blocks = cpu::count_visible_blocks(masks);
  }
  return result;
}

/// Modes other than full.
Result run_ours(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale,
                Workspace& workspace) {
#ifdef SPARSEREEL_CUDA
  if (q.is_cuda()) return run_on_cuda(q, k, v, context, scale, workspace);
#endif
  const auto [queries, keys] = apply_prologue(context.prologue, q, k);
  return CpuCall(queries, keys, v, context, scale).run(workspace);
}

double scale_of(const at::Tensor& q, const Context& context) {
  return context.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
}

/// Whether a call asks for sparse attention where full is faster.
bool is_too_short(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  if (context.mode != Mode::sparse || !q.is_cuda() || context.block_map || !forced_kernel().empty()) return false;
  return 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(1)) < context.policy.dense_operations;
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
  check_context(q, k, context);
  if (const std::string reason = unsupported_reason(context.mode, q.device(), q.scalar_type()); !reason.empty())
    refuse("mode " + std::string(name(context.mode)) + " cannot run: " + reason, "use mode full");
  const double scale = scale_of(q, context);
  const at::Tensor lengths =
      context.key_lengths.defined() ? context.key_lengths.to(at::kCPU).contiguous() : at::Tensor();
  const cpu::Problem masks = masks_of(q, k, context, lengths);
  const bool too_short = is_too_short(q, k, context), full = context.mode == Mode::full || too_short;
  Result result;
  if (!full) result = run_ours(q, k, v, context, scale, workspace);
  if (full) {
    result = run_full(q, k, v, context, scale, masks);
    if (too_short) result.kernel += ", which is faster than sparse attention on sequences this short";
  } else if (context.mode == Mode::check) {
    const auto [queries, keys] = apply_prologue(context.prologue, q, k);
    add_error(result.out, sdpa(queries, keys, v, context, scale).out, result.statistics);
  }
  result.statistics.total_blocks = cpu::count_visible_blocks(masks);
  result.statistics.calls = 1;
  // A GPU's work has only been enqueued by now.
  if (q.is_cpu())
    result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::optional<Result> attention_weights(const at::Tensor& q, const at::Tensor& k, const Context& context) {
  check_tensors(q, k, k);
  check_context(q, k, context);
  if (context.mode != Mode::full) refuse("weights in mode " + std::string(name(context.mode)), "use mode full");
#ifdef SPARSEREEL_CUDA
  if (has_few_keys_kernel(q, k, context)) return weights_on_cuda(q, k, context, scale_of(q, context));
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
