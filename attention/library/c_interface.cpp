// The library's C functions. They turn the caller's structs into calls, and exceptions into a status and a message.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "attention/core/check.h"
#include "attention/core/executor.h"
#include "attention/core/refusal.h"
#include "attention/core/threads.h"
#include "attention/cpu/selection.h"
#include "hilbert/token_order.h"

using namespace sparsereel::attention;

struct sparsereel_attention {
  std::unique_ptr<Executor> executor;
};

namespace {

thread_local char last_message[1024] = "";

sparsereel_status say(sparsereel_status status, const char* cause, const char* remedy) {
  std::snprintf(last_message, sizeof last_message, *remedy == '\0' ? "%s" : "%s; %s", cause, remedy);
  return status;
}

/// Runs body() and turns an exception into a status and a message.
template <typename Body>
sparsereel_status guarded(const Body& body) {
  try {
    body();
    return SPARSEREEL_OK;
  } catch (const Refusal& refusal) {
    return say(refusal.status(), refusal.what(), refusal.remedy().c_str());
  } catch (const sparsereel::Error& error) {
    const bool bad = error.kind() == sparsereel::ErrorKind::bad_input;
    return say(bad ? SPARSEREEL_BAD_ARGUMENT : SPARSEREEL_FAILED, error.what(), error.remedy().c_str());
  } catch (const std::bad_alloc&) {
    return say(SPARSEREEL_OUT_OF_MEMORY, "attention: the host is out of memory", "make the call smaller");
  } catch (const std::exception& error) {
    return say(SPARSEREEL_FAILED, error.what(), "");
  } catch (...) {
    return say(SPARSEREEL_FAILED, "attention: an exception of unknown type", "");
  }
}

[[noreturn]] void refuse_field(const std::string& field, int64_t value) {
  throw Refusal(SPARSEREEL_BAD_ARGUMENT, field + " is " + std::to_string(value) + ", which is not one of its constants",
                "use a constant that sparsereel/attention.h defines for it");
}

void check_not_null(const void* pointer, const char* name) {
  if (pointer == nullptr)
    throw Refusal(SPARSEREEL_BAD_ARGUMENT, std::string(name) + " is null", "pass a pointer that is not null");
}

/// Throws Refusal unless `size` is the size of the call struct in this header or the smaller size in an earlier version
/// of it.
void check_call_size(size_t size, const char* remedy) {
  constexpr size_t kSizes[] = {offsetof(sparsereel_attention_call, kv_heads), sizeof(sparsereel_attention_call)};
  if (std::find(std::begin(kSizes), std::end(kSizes), size) != std::end(kSizes)) return;
  throw Refusal(
      SPARSEREEL_BAD_ARGUMENT,
      "the call's size is " + std::to_string(size) + ", not " + std::to_string(sizeof(sparsereel_attention_call)),
      remedy);
}

/// Returns the C++ value of a C constant: values[constant]. Throws Refusal if there is no such value.
template <typename Value, size_t kValues>
Value chosen(const char* field, int64_t constant, const Value (&values)[kValues]) {
  if (constant < 0 || constant >= static_cast<int64_t>(kValues)) refuse_field(field, constant);
  return values[constant];
}

HeadPolicy head_policy(const sparsereel_head_policy& from) {
  HeadPolicy head;
  head.selection = chosen("selection", from.selection,
                          {Selection::topk, Selection::cdf, Selection::error, Selection::topk,  // the fourth is dense
                           Selection::block_error});
  head.dense = from.selection == SPARSEREEL_DENSE;
  head.topk = from.topk;
  head.cdf = from.cdf;
  (head.selection == Selection::block_error ? head.block_error : head.error) = from.error;
  head.similarity = from.similarity;
  head.pv_threshold = from.pv_threshold;
  return head;
}

sparsereel_head_policy head_policy(const HeadPolicy& from) {
  return {.selection = SPARSEREEL_TOPK,
          .topk = from.topk,
          .cdf = from.cdf,
          .error = from.error,
          .similarity = from.similarity,
          .pv_threshold = from.pv_threshold};
}

StridedRows rows_of(const sparsereel_tensor& tensor) {
  return {tensor.data, tensor.batch_stride, tensor.token_stride, tensor.head_stride};
}

CallPrologue prologue_of(const sparsereel_attention_prologue& from, const sparsereel_attention_parts& parts) {
  return {.norm = chosen("norm", from.norm, {Norm::none, Norm::layer, Norm::rms}),
          .across_heads = from.across_heads != 0,
          .eps = from.eps,
          .q_weight = from.q_weight,
          .q_bias = from.q_bias,
          .k_weight = from.k_weight,
          .k_bias = from.k_bias,
          .rotary_pairs = from.rotary_pairs,
          .rotary_cos = from.rotary_cos,
          .rotary_sin = from.rotary_sin,
          .interleaved = from.interleaved != 0,
          .text_q_weight = parts.text_q_weight,
          .text_k_weight = parts.text_k_weight,
          .rotary_positions = parts.rotary_positions,
          .rotary_frequencies = parts.rotary_frequencies};
}

/// A call, together with the head policies that it points to.
class CallerCall {
 public:
  explicit CallerCall(const sparsereel_attention_call* from) {
    check_not_null(from, "call");
    check_call_size(from->size, "initialize the call with sparsereel_attention_call_init() from this library's header");
    sparsereel_attention_call all{};  // fields that the caller's smaller struct does not have stay 0
    std::memcpy(&all, from, from->size);
    fill_sizes(all);
    check_sizes(call_);  // must come before fill_policy(), which reads as many head policies as the call has heads
    fill_policy(all.policy);
    if (all.arithmetic != 0) call_.policy.arithmetic = all.arithmetic;
    call_.prologue = prologue_of(all.prologue, all.parts);
    check(call_);
  }
  CallerCall(const CallerCall&) = delete;
  CallerCall& operator=(const CallerCall&) = delete;

  const Call& call() const { return call_; }

 private:
  void fill_sizes(const sparsereel_attention_call& from) {
    call_.quantized = from.quantized != 0;
    call_.element = chosen("element", from.element, {Element::fp32, Element::fp16, Element::bf16});
    call_.batch = from.batch;
    call_.heads = from.heads;
    call_.kv_heads = from.kv_heads;
    call_.queries = from.queries;
    call_.keys = from.keys;
    call_.head_dim = from.head_dim;
    call_.q = rows_of(from.q);
    call_.k = rows_of(from.k);
    call_.v = rows_of(from.v);
    call_.out = rows_of(from.out);
    call_.lse = from.lse;
    call_.scale = from.scale == 0 ? 1 / std::sqrt(static_cast<double>(from.head_dim)) : from.scale;
    call_.text_tokens = from.text_tokens;
    call_.causal = from.causal != 0;
    call_.key_lengths = from.key_lengths;
    call_.map = from.map;
    call_.map_rows = from.map_rows;
    call_.counts = from.counts;
  }

  void fill_policy(const sparsereel_attention_policy& from) {
    CallPolicy& policy = call_.policy;
    policy.defaults = head_policy(from.all);
    if (from.heads != nullptr) {
      for (int64_t h = 0; h < call_.heads; ++h) heads_.push_back(head_policy(from.heads[h]));
      policy.heads = heads_;
    }
    const auto is_dense = [](const HeadPolicy& head) { return head.dense; };
    policy.dense = heads_.empty() ? policy.defaults.dense : std::all_of(heads_.begin(), heads_.end(), is_dense);
    policy.dropped = chosen("dropped", from.dropped, {Dropped::mean, Dropped::none});
    policy.ranking = chosen("ranking", from.ranking, {Ranking::error, Ranking::mass});
    policy.cell = from.cell;
    policy.selection_rows = from.selection_rows;
    policy.dense_operations = from.dense_operations;
  }

  Call call_;
  std::vector<HeadPolicy> heads_;
};

Executor& executor_of(sparsereel_attention* attention) {
  check_not_null(attention, "attention");
  return *attention->executor;
}

void refuse_short(const Executor& executor, const Call& call) {
  if (!executor.is_gpu() || !is_too_short(call)) return;
  throw Refusal(SPARSEREEL_TOO_SHORT, "full attention is faster on sequences this short",
                "use it for this call, or lower policy.dense_operations");
}

void check_threads(int threads) {
  constexpr int kMost = 1024;  // rejects mistaken numbers; the system itself would start far more threads
  if (threads < 0 || threads > kMost)
    throw Refusal(SPARSEREEL_BAD_ARGUMENT, "threads is " + std::to_string(threads),
                  "pass 0 for all threads of the machine, or at most " + std::to_string(kMost));
}

cpu::ParallelFor own_threads(int count) {
  return [threads = std::make_shared<Threads>(count)](
             int64_t parts, const std::function<void(int64_t, int64_t)>& body) { threads->run(parts, body); };
}

/// A task for the caller's parallel_for. It stores an exception of the body until parallel_for has returned, because
/// exceptions must not pass through the caller's function, which may be written in C.
struct CallerTask {
  const std::function<void(int64_t, int64_t)>& body;
  std::mutex mutex{};
  std::exception_ptr failure{};

  static void run(void* context, int64_t begin, int64_t end) {
    auto& part = *static_cast<CallerTask*>(context);
    try {
      part.body(begin, end);
    } catch (...) {
      const std::lock_guard lock(part.mutex);
      part.failure = std::current_exception();
    }
  }
};

cpu::ParallelFor callers_threads(sparsereel_parallel_for parallel_for, void* context) {
  return [=](int64_t count, const std::function<void(int64_t, int64_t)>& body) {
    CallerTask part{.body = body};
    parallel_for(context, count, CallerTask::run, &part);
    if (part.failure) std::rethrow_exception(part.failure);
  };
}

CpuExecutor& cpu_of(sparsereel_attention* attention) {
  auto* cpu = dynamic_cast<CpuExecutor*>(&executor_of(attention));
  if (cpu == nullptr)
    throw Refusal(SPARSEREEL_BAD_ARGUMENT, "threads or parallel_for was set for the handle of a GPU",
                  "set it only for handles created with SPARSEREEL_CPU");
  return *cpu;
}

}  // namespace

const char* sparsereel_status_name(sparsereel_status status) {
  constexpr const char* kNames[] = {"ok",        "bad argument", "workspace too small", "unsupported",   "no device",
                                    "too short", "CUDA error",   "earlier CUDA error",  "out of memory", "failed"};
  return status >= 0 && status < static_cast<int>(std::size(kNames)) ? kNames[status] : "unknown";
}

const char* sparsereel_message(void) {
  return last_message;
}

const char* sparsereel_attention_version(void) {
  return SPARSEREEL_ATTENTION_VERSION;
}

int sparsereel_attention_has_cuda(void) {
  return has_cuda_executor() ? 1 : 0;
}

sparsereel_status sparsereel_attention_create(int device, sparsereel_attention** attention) {
  return guarded([&] {
    check_not_null(attention, "attention");
    *attention = nullptr;
    if (device < SPARSEREEL_CPU) refuse_field("device", device);
    auto handle = std::make_unique<sparsereel_attention>();
    if (device == SPARSEREEL_CPU) {
      handle->executor = std::make_unique<CpuExecutor>(own_threads(0));
    } else {
      handle->executor = make_cuda_executor(device);
    }
    *attention = handle.release();
  });
}

void sparsereel_attention_destroy(sparsereel_attention* attention) {
  delete attention;
}

sparsereel_status sparsereel_attention_set_threads(sparsereel_attention* attention, int threads) {
  return guarded([&] {
    check_threads(threads);
    cpu_of(attention).set_parallel(own_threads(threads));
  });
}

sparsereel_status sparsereel_attention_set_parallel_for(sparsereel_attention* attention,
                                                        sparsereel_parallel_for parallel_for, void* context) {
  return guarded([&] {
    if (parallel_for == nullptr)
      throw Refusal(SPARSEREEL_BAD_ARGUMENT, "parallel_for is null", "pass a function, or set threads instead");
    cpu_of(attention).set_parallel(callers_threads(parallel_for, context));
  });
}

sparsereel_status sparsereel_attention_call_init(sparsereel_attention_call* call, size_t size) {
  return guarded([&] {
    check_not_null(call, "call");
    check_call_size(size, "compile with this library's header");
    const BlockPolicy defaults;
    sparsereel_attention_call all{};
    all.size = size;
    all.policy = {.all = head_policy(defaults.defaults),
                  .heads = nullptr,
                  .dropped = SPARSEREEL_MEANS,
                  .ranking = SPARSEREEL_BY_ERROR,
                  .cell = defaults.cell,
                  .selection_rows = defaults.selection_rows,
                  .dense_operations = defaults.dense_operations};
    all.map_rows = kBlock;
    all.prologue.eps = CallPrologue{}.eps;
    all.prologue.interleaved = 1;
    std::memcpy(call, &all, size);
  });
}

sparsereel_status sparsereel_attention_workspace_size(sparsereel_attention* attention,
                                                      const sparsereel_attention_call* call, size_t* bytes) {
  return guarded([&] {
    check_not_null(bytes, "bytes");
    const Executor& executor = executor_of(attention);
    const CallerCall its(call);
    refuse_short(executor, its.call());
    *bytes = executor.workspace_bytes(its.call());
  });
}

sparsereel_status sparsereel_attention_run(sparsereel_attention* attention, const sparsereel_attention_call* call,
                                           void* workspace, size_t bytes, void* stream) {
  return guarded([&] {
    Executor& executor = executor_of(attention);
    const CallerCall its(call);
    refuse_short(executor, its.call());
    executor.run(its.call(), workspace, bytes, stream);
  });
}

sparsereel_status sparsereel_attention_total_blocks(sparsereel_attention* attention,
                                                    const sparsereel_attention_call* call, int64_t* blocks) {
  return guarded([&] {
    check_not_null(blocks, "blocks");
    const Executor& executor = executor_of(attention);
    const CallerCall its(call);
    const int64_t* lengths = its.call().key_lengths;
    if (executor.is_gpu() && lengths != nullptr)
      throw Refusal(SPARSEREEL_UNSUPPORTED, "key_lengths is in the memory of a GPU, which this function does not read",
                    "leave it null, or pass a copy of it to a handle of SPARSEREEL_CPU");
    if (lengths != nullptr) check_key_lengths(lengths, its.call().batch, its.call().keys);
    *blocks = cpu::count_visible_blocks(masks_of(its.call(), lengths));
  });
}

sparsereel_status sparsereel_attention_describe(sparsereel_attention* attention, const sparsereel_attention_call* call,
                                                char* text, size_t size) {
  return guarded([&] {
    check_not_null(text, "text");
    const Executor& executor = executor_of(attention);
    const CallerCall its(call);
    std::snprintf(text, size, "%s", executor.describe(its.call()).c_str());
  });
}

sparsereel_status sparsereel_token_order(sparsereel_order order, int64_t frames, int64_t height, int64_t width,
                                         int64_t* places, int64_t* inverse) {
  return guarded([&] {
    using sparsereel::hilbert::TokenOrder;
    const TokenOrder wanted =
        chosen("order", order, {TokenOrder::hilbert, TokenOrder::native, TokenOrder::time_major, TokenOrder::morton});
    const auto& permutation = sparsereel::hilbert::permutation(wanted, {frames, height, width});
    if (places != nullptr) std::copy(permutation.order.begin(), permutation.order.end(), places);
    if (inverse != nullptr) std::copy(permutation.inverse.begin(), permutation.inverse.end(), inverse);
  });
}
