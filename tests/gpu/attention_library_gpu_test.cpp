// Tests the C interface on a GPU: it gives the same bits as the torch operator, threads and handles may be used
// concurrently, and CUDA errors of other code are handled.
#include "sparsereel/attention.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "attention/cuda/device.h"
#include "attention/cuda/launch.h"
#include "tests/gpu/attend_on_gpu.h"

#ifdef SPARSEREEL_CUDA

namespace sparsereel::attention {
namespace {

sparsereel_tensor tensor_of(const at::Tensor& x) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

/// Tensors on a GPU and the C call for them. The output is filled with NaN, so that missing results are seen.
struct GpuCall {
  GpuCall(const Inputs& x, at::ScalarType dtype, c10::Device device = at::kCUDA)
      : q(x.q.to(device, dtype)), k(x.k.to(device, dtype)), v(x.v.to(device, dtype)) {
    out = at::full_like(q, NAN);
    lse = at::full({q.size(0), q.size(2), q.size(1)}, NAN, q.options().dtype(at::kFloat));
    counts = at::zeros({SPARSEREEL_COUNTS}, q.options().dtype(at::kLong));
    call.element = dtype == at::kHalf ? SPARSEREEL_FP16 : SPARSEREEL_BF16;
    call.batch = q.size(0);
    call.queries = q.size(1);
    call.keys = k.size(1);
    call.heads = q.size(2);
    if (k.size(2) != q.size(2)) call.kv_heads = k.size(2);
    call.head_dim = q.size(3);
    call.q = tensor_of(q);
    call.k = tensor_of(k);
    call.v = tensor_of(v);
    call.out = tensor_of(out);
    call.lse = lse.data_ptr<float>();
    call.counts = reinterpret_cast<uint64_t*>(counts.data_ptr<int64_t>());
    call.policy.dense_operations = 0;
  }

  /// Runs the call in torch's current stream and waits for it.
  void run(Attention& library) {
    const auto bytes = static_cast<int64_t>(library.workspace_size(call));
    const at::Tensor workspace = at::full({bytes}, 0xFF, q.options().dtype(at::kByte));
    const auto stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(q.device());
    EXPECT_TRUE(library.run(call, workspace.data_ptr(), static_cast<size_t>(bytes), stream.native_handle()));
    models::synchronize(q.device());
  }

  /// Expects the call to fail with `cause` in the message, and returns the status. Only a CUDA error may change out.
  sparsereel_status refusal(Attention& library, const std::string& cause) {
    size_t bytes = 0;
    sparsereel_status status = sparsereel_attention_workspace_size(library.get(), &call, &bytes);
    const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes) + 1}, q.options().dtype(at::kByte));
    if (status == SPARSEREEL_OK)
      status = sparsereel_attention_run(library.get(), &call, workspace.data_ptr(), bytes, nullptr);
    EXPECT_NE(std::string(sparsereel_message()).find(cause), std::string::npos) << sparsereel_message();
    models::synchronize(q.device());
    EXPECT_TRUE(status == SPARSEREEL_CUDA_ERROR || out.isnan().all().item<bool>()) << cause;
    return status;
  }

  at::Tensor q, k, v, out, lse, counts;
  AttentionCall call;
};

class AttentionLibraryOnGpu : public AttendOnGpu {
 protected:
  /// Expects the C call, which `set` completes, to give the same bits and counts as torch's operator.
  void expect_same_bits(const Inputs& x, Context context, const std::function<void(GpuCall&)>& set,
                        at::ScalarType dtype = at::kBFloat16) {
    Attention library(0);
    GpuCall mine(x, dtype);
    set(mine);
    context.return_lse = true;
    const Result torch = on_gpu(x, context, dtype);
    mine.run(library);
    EXPECT_TRUE(at::equal(mine.out, torch.out));
    EXPECT_TRUE(at::equal(mine.lse, torch.lse));
    const at::Tensor counts = mine.counts.cpu();
    EXPECT_EQ(counts[SPARSEREEL_COUNT_KEPT].item<int64_t>(), torch.statistics.kept_blocks);
    EXPECT_EQ(counts[SPARSEREEL_COUNT_MEANS].item<int64_t>(), torch.statistics.mean_blocks);
    EXPECT_EQ(counts[SPARSEREEL_COUNT_SKIPPED_PV].item<int64_t>(), torch.statistics.skipped_pv_blocks);
    EXPECT_EQ(library.describe(mine.call), torch.kernel);
  }

  static Context sparse(double topk) {
    Context context{.mode = Mode::sparse};
    context.policy.defaults.topk = topk;
    return context;
  }
};

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperator) {
  for (const int64_t head_dim : {64, 128, 256})
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const Inputs x = inputs(2, 1000, 1000, 3, head_dim, dtype);
      expect_same_bits(
          x, sparse(0.3), [](GpuCall& mine) { mine.call.policy.all.topk = 0.3; }, dtype);
      expect_same_bits(
          x, {.mode = Mode::quantized}, [](GpuCall& mine) { mine.call.quantized = 1; }, dtype);
    }
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorWithFewerHeadsOfKeysAndValues) {
  for (const int64_t head_dim : {64, 128, 256}) {
    Inputs x = inputs(2, 1000, 1000, 8, head_dim);
    x.k = x.k.narrow(2, 0, 2);
    x.v = x.v.narrow(2, 0, 2);
    expect_same_bits(x, sparse(0.3), [](GpuCall& mine) { mine.call.policy.all.topk = 0.3; });
    expect_same_bits(x, {.mode = Mode::quantized}, [](GpuCall& mine) { mine.call.quantized = 1; });
  }
}

TEST_F(AttentionLibraryOnGpu, StoresSharedKeysAndValuesOnce) {
  const Attention library(0);
  AttentionCall all(1, 24576, 32, 128), as_many(1, 24576, 32, 128, 32), fewer(1, 24576, 32, 128, 8);
  for (AttentionCall* call : {&all, &as_many, &fewer}) {
    call->element = SPARSEREEL_BF16;
    call->quantized = 1;
  }
  EXPECT_EQ(library.workspace_size(as_many), library.workspace_size(all));
  const auto records = static_cast<int64_t>(2) * 24 * 24576 * 128;  // bytes of K and V of 24 heads
  const auto saved =
      static_cast<int64_t>(library.workspace_size(all)) - static_cast<int64_t>(library.workspace_size(fewer));
  EXPECT_GT(saved, records);
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorWithEveryPolicy) {
  const Inputs x = inputs(2, 1500, 1500, 4, 128);
  Context by_mass = sparse(0.4);
  by_mass.policy.dropped = Dropped::none;
  by_mass.policy.ranking = Ranking::mass;
  by_mass.policy.defaults.similarity = 0.2;
  by_mass.text_tokens = 40;
  expect_same_bits(x, by_mass, [](GpuCall& mine) {
    mine.call.policy.all.topk = 0.4;
    mine.call.policy.all.similarity = 0.2;
    mine.call.policy.dropped = SPARSEREEL_NOTHING;
    mine.call.policy.ranking = SPARSEREEL_BY_MASS;
    mine.call.text_tokens = 40;
  });
  Context by_cdf = by_mass;
  by_cdf.policy.defaults.selection = Selection::cdf;
  by_cdf.policy.defaults.cdf = 0.7;
  by_cdf.policy.selection_rows = 128;
  by_cdf.causal = true;
  by_cdf.text_tokens = 0;
  expect_same_bits(x, by_cdf, [](GpuCall& mine) {
    mine.call.policy.all.selection = SPARSEREEL_CDF;
    mine.call.policy.all.cdf = 0.7;
    mine.call.policy.all.topk = 0.4;
    mine.call.policy.all.similarity = 0.2;
    mine.call.policy.dropped = SPARSEREEL_NOTHING;
    mine.call.policy.ranking = SPARSEREEL_BY_MASS;
    mine.call.policy.selection_rows = 128;
    mine.call.causal = 1;
  });
  Context to_an_error = sparse(1);
  to_an_error.policy.defaults.selection = Selection::error;
  to_an_error.policy.defaults.error = 0.2;
  expect_same_bits(x, to_an_error, [](GpuCall& mine) {
    mine.call.policy.all.selection = SPARSEREEL_ERROR;
    mine.call.policy.all.topk = 1;
    mine.call.policy.all.error = 0.2;
  });
  Context to_a_blocks_error = sparse(1);
  to_a_blocks_error.policy.defaults.selection = Selection::block_error;
  to_a_blocks_error.policy.defaults.block_error = 0.02;
  expect_same_bits(x, to_a_blocks_error, [](GpuCall& mine) {
    mine.call.policy.all.selection = SPARSEREEL_BLOCK_ERROR;
    mine.call.policy.all.topk = 1;
    mine.call.policy.all.error = 0.02;
  });
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorIfHeadsDiffer) {
  const int64_t count = 70;  // more heads than one launch can pass settings for
  const Inputs x = inputs(1, 700, 700, count, 64);
  std::vector<HeadPolicy> heads(count);
  std::vector<sparsereel_head_policy> mine_heads(count, AttentionCall().policy.all);
  for (size_t h = 0; h < heads.size(); ++h) {
    heads[h].topk = mine_heads[h].topk = 0.1 + 0.01 * static_cast<double>(h);
    heads[h].dense = h == 66;
  }
  mine_heads[66].selection = SPARSEREEL_DENSE;
  Context context = sparse(0.5);
  context.policy.heads = heads;
  expect_same_bits(x, context, [&](GpuCall& mine) { mine.call.policy.heads = mine_heads.data(); });
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorWithMasksAndMaps) {
  const Inputs x = inputs(2, 900, 900, 3, 64);
  const at::Tensor lengths = at::tensor({900, 333}, at::kLong).to(at::kCUDA);
  Context padded = sparse(0.5);
  padded.key_lengths = lengths;
  expect_same_bits(x, padded, [&](GpuCall& mine) {
    mine.call.policy.all.topk = 0.5;
    mine.call.key_lengths = lengths.data_ptr<int64_t>();
  });
  const at::Tensor wide = at::randint(2, {2, 3, 8, 15}, at::kByte);  // a row of the map is for 128 queries
  const at::Tensor tall = wide.repeat_interleave(2, 2).narrow(2, 0, 15).contiguous();
  const at::Tensor wide_there = wide.to(at::kCUDA), tall_there = tall.to(at::kCUDA);
  Context mapped = sparse(0.5);
  mapped.block_map = BlockMap(2, 3, 15, 15, false);
  std::copy(tall.data_ptr<uint8_t>(), tall.data_ptr<uint8_t>() + tall.numel(), mapped.block_map->bits.begin());
  expect_same_bits(x, mapped, [&](GpuCall& mine) { mine.call.map = tall_there.data_ptr<uint8_t>(); });
  expect_same_bits(x, mapped, [&](GpuCall& mine) {
    mine.call.map = wide_there.data_ptr<uint8_t>();
    mine.call.map_rows = 128;
  });
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorWithAPrologue) {
  for (const bool interleaved : {true, false})
    for (const bool across_heads : {true, false}) {
      const int64_t heads = 3, head_dim = 64, text = 50, video = 800 - text;
      const Inputs x = inputs(1, 800, 800, heads, head_dim);
      const at::Tensor half = at::rand({video, head_dim / 2}) * 6;
      const at::Tensor angles = interleaved ? half.repeat_interleave(2, 1) : at::cat({half, half}, 1);
      Context context = sparse(0.4);
      context.text_tokens = text;
      Prologue& p = context.prologue;
      p.norm = across_heads ? Prologue::Norm::rms : Prologue::Norm::layer;
      p.across_heads = across_heads;
      p.q_weight = at::rand({across_heads ? heads * head_dim : head_dim}) + 0.5;
      p.k_weight = at::rand({across_heads ? heads * head_dim : head_dim}) + 0.5;
      p.k_bias = at::rand({across_heads ? heads * head_dim : head_dim});
      p.rotary_cos = angles.cos();
      p.rotary_sin = angles.sin();
      p.interleaved = interleaved;
      const Prologue there = on_device(p);
      Context with_pairs = context;
      with_pairs.prologue.rotary_pairs = rotary_pairs(there);  // torch rounds the pairs, not the kernel
      const auto set = [&](GpuCall& mine) {
        mine.call.policy.all.topk = 0.4;
        mine.call.text_tokens = text;
        mine.call.prologue.norm = across_heads ? SPARSEREEL_RMS_NORM : SPARSEREEL_LAYER_NORM;
        mine.call.prologue.across_heads = across_heads ? 1 : 0;
        mine.call.prologue.q_weight = there.q_weight.data_ptr<float>();
        mine.call.prologue.k_weight = there.k_weight.data_ptr<float>();
        mine.call.prologue.k_bias = there.k_bias.data_ptr<float>();
        mine.call.prologue.rotary_cos = there.rotary_cos.data_ptr<float>();
        mine.call.prologue.rotary_sin = there.rotary_sin.data_ptr<float>();
        mine.call.prologue.interleaved = interleaved ? 1 : 0;
      };
      expect_same_bits(x, context, set);
      expect_same_bits(x, with_pairs, set);
      expect_same_bits(x, context, [&](GpuCall& mine) {
        set(mine);
        mine.call.prologue.rotary_cos = mine.call.prologue.rotary_sin = nullptr;
        mine.call.prologue.rotary_pairs = with_pairs.prologue.rotary_pairs.data_ptr();
      });
    }
}

TEST_F(AttentionLibraryOnGpu, GivesTheSameBitsAsTheOperatorWithSeparateTextWeightsAndAnglesPerHead) {
  const int64_t heads = 3, head_dim = 64, text = 50, video = 800 - text;
  const Inputs x = inputs(1, 800, 800, heads, head_dim);
  Context context = sparse(0.4);
  context.text_tokens = text;
  context.prologue = prologue_by_part(video, heads, head_dim, true, true);
  const Prologue there = on_device(context.prologue);
  expect_same_bits(x, context, [&](GpuCall& mine) {
    mine.call.policy.all.topk = 0.4;
    mine.call.text_tokens = text;
    mine.call.prologue.norm = SPARSEREEL_RMS_NORM;
    mine.call.prologue.q_weight = there.q_weight.data_ptr<float>();
    mine.call.prologue.k_weight = there.k_weight.data_ptr<float>();
    mine.call.parts = {.text_q_weight = there.text_q_weight.data_ptr<float>(),
                       .text_k_weight = there.text_k_weight.data_ptr<float>(),
                       .rotary_positions = there.rotary_positions.data_ptr<float>(),
                       .rotary_frequencies = there.rotary_frequencies.data_ptr<float>()};
  });
}

TEST_F(AttentionLibraryOnGpu, ServesThreadsWithSharedAndSeparateHandles) {
  const Inputs x = inputs(1, 4000, 4000, 8, 64);
  Attention library(0);
  GpuCall first(x, at::kBFloat16);
  first.run(library);
  const auto repeat = [&](Attention& its, bool& same) {
    const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
    GpuCall mine(x, at::kBFloat16);
    mine.call.counts = nullptr;
    const auto bytes = static_cast<int64_t>(its.workspace_size(mine.call));
    const at::Tensor workspace = at::empty({bytes}, mine.q.options().dtype(at::kByte));
    models::synchronize(mine.q.device());
    const c10::Stream stream = cuda.getStreamFromGlobalPool(mine.q.device());
    same = true;
    for (int i = 0; i < 30; ++i) {
      its.run(mine.call, workspace.data_ptr(), static_cast<size_t>(bytes), stream.native_handle());
      cuda.synchronizeStream(stream);
      same = same && at::equal(mine.out, first.out);
      mine.out.fill_(NAN);
      models::synchronize(mine.q.device());
    }
  };
  Attention one(0), other(0);
  bool same[4] = {};
  std::thread threads[4] = {std::thread([&] { repeat(one, same[0]); }), std::thread([&] { repeat(other, same[1]); }),
                            std::thread([&] { repeat(library, same[2]); }),
                            std::thread([&] { repeat(library, same[3]); })};
  for (std::thread& thread : threads) thread.join();
  for (const bool all : same) EXPECT_TRUE(all);
}

TEST_F(AttentionLibraryOnGpu, NeitherClearsNorReportsAnEarlierCudaError) {
  const Inputs x = inputs(1, 500, 500, 2, 64);
  Attention library(0);
  GpuCall first(x, at::kBFloat16), second(x, at::kBFloat16);
  first.run(library);
  // Allocate before the error is caused, because libtorch's allocator clears a pending error.
  const size_t bytes = library.workspace_size(second.call);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, second.q.options().dtype(at::kByte));
  models::synchronize(second.q.device());
  std::thread thread([&] {  // a thread of its own, because CUDA keeps a last error for each thread
    EXPECT_EQ(cuda::pending_error(), nullptr);
    EXPECT_EQ(cuda::compute_capability(9999), 0);
    const std::string earlier = cuda::pending_error();
    EXPECT_NE(earlier.find("invalid"), std::string::npos) << earlier;
    EXPECT_EQ(sparsereel_attention_run(library.get(), &second.call, workspace.data_ptr(), bytes, nullptr),
              SPARSEREEL_OK);
    EXPECT_STREQ(cuda::pending_error(), earlier.c_str());
    Attention another(0);
    EXPECT_STREQ(cuda::pending_error(), earlier.c_str());
  });
  thread.join();
  models::synchronize(second.q.device());
  EXPECT_TRUE(at::equal(first.out, second.out));
}

/// Runs in a process of its own, because no CUDA call works after a kernel has accessed an illegal address.
[[noreturn]] void run_after_a_broken_kernel() {
  Attention library(0);
  GpuCall mine({.q = at::zeros({1, 100, 1, 64}), .k = at::zeros({1, 100, 1, 64}), .v = at::zeros({1, 100, 1, 64})},
               at::kHalf);
  const size_t bytes = library.workspace_size(mine.call);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, mine.q.options().dtype(at::kByte)),
                   index = at::zeros({1}, mine.q.options().dtype(at::kLong));
  cuda::gather_rows(reinterpret_cast<const void*>(64), 0, 0, index.const_data_ptr<int64_t>(), workspace.data_ptr(), 0,
                    0, 1, 1, 16, nullptr);
  try {
    models::synchronize(mine.q.device());
  } catch (const std::exception&) {
    // This error comes from the illegal address above.
  }
  const sparsereel_status status =
      sparsereel_attention_run(library.get(), &mine.call, workspace.data_ptr(), bytes, nullptr);
  std::fprintf(stderr, "%s: %s\n", sparsereel_status_name(status), sparsereel_message());
  std::_Exit(status);
}

TEST_F(AttentionLibraryOnGpu, ReportsThatCudaHadFailedBeforeTheCall) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(run_after_a_broken_kernel(), ::testing::ExitedWithCode(SPARSEREEL_EARLIER_CUDA_ERROR),
              "earlier CUDA error: attention: a CUDA call before this one failed");
}

TEST_F(AttentionLibraryOnGpu, RefusesMoreBatchEntriesThanAGridHoldsAndContinues) {
  Attention library(0);
  GpuCall mine(
      {.q = at::zeros({70000, 1, 1, 16}), .k = at::zeros({70000, 1, 1, 16}), .v = at::zeros({70000, 1, 1, 16})},
      at::kHalf);
  mine.call.quantized = 1;
  EXPECT_EQ(mine.refusal(library, "use at most 65535 in a call"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(cuda::pending_error(), nullptr);
  GpuCall next(inputs(1, 100, 100, 1, 64), at::kHalf);
  next.run(library);
  EXPECT_FALSE(next.out.isnan().any().item<bool>());
}

TEST_F(AttentionLibraryOnGpu, RefusesTooSmallAndNullWorkspaces) {
  Attention library(0);
  GpuCall mine(inputs(1, 500, 500, 2, 64), at::kHalf);
  const size_t bytes = library.workspace_size(mine.call);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, mine.q.options().dtype(at::kByte));
  EXPECT_EQ(sparsereel_attention_run(library.get(), &mine.call, workspace.data_ptr(), bytes - 1, nullptr),
            SPARSEREEL_WORKSPACE_TOO_SMALL);
  EXPECT_EQ(sparsereel_attention_run(library.get(), &mine.call, nullptr, bytes, nullptr), SPARSEREEL_BAD_ARGUMENT);
  models::synchronize(mine.q.device());
  EXPECT_TRUE(mine.out.isnan().all().item<bool>());
}

TEST_F(AttentionLibraryOnGpu, SaysIfFullAttentionIsFaster) {
  if (!forced_kernel().empty()) GTEST_SKIP() << "a kernel is forced: nothing is too short";
  Attention library(0);
  GpuCall mine(inputs(1, 500, 500, 2, 64), at::kHalf);
  mine.call.policy.dense_operations = AttentionCall().policy.dense_operations;
  EXPECT_EQ(mine.refusal(library, "full attention is faster on sequences this short"), SPARSEREEL_TOO_SHORT);
  EXPECT_EQ(library.workspace_size(mine.call), 0U);
  EXPECT_FALSE(library.run(mine.call, nullptr, 0));
  mine.call.policy.dense_operations = 0;
  mine.run(library);
  EXPECT_FALSE(mine.out.isnan().any().item<bool>());
}

TEST_F(AttentionLibraryOnGpu, RefusesCallsThatItsKernelsCannotRead) {
  Attention library(0);
  const auto refused = [&](const std::function<void(GpuCall&)>& spoil, const std::string& cause) {
    GpuCall mine(inputs(1, 100, 100, 2, 64), at::kHalf);
    spoil(mine);
    return mine.refusal(library, cause);
  };
  EXPECT_EQ(refused([](GpuCall& c) { c.call.q.data = static_cast<char*>(c.call.q.data) + 2; }, "rows of q"),
            SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.k.token_stride += 1; }, "rows of k"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.v.token_stride = int64_t{1} << 31; }, "2^31"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.out.data = static_cast<char*>(c.call.out.data) + 8; }, "rows of out"),
            SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.element = SPARSEREEL_FP32; }, "fp32 tensors"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.head_dim = 60; }, "head_dim is 60"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.policy.cell = 32; }, "cell of 32"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](GpuCall& c) { c.call.scale = -1; }, "scale is -1"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_set_threads(library.get(), 2), SPARSEREEL_BAD_ARGUMENT);
}

TEST_F(AttentionLibraryOnGpu, RunsOnSeveralDevicesWithoutChangingTheCurrentOne) {
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  const auto devices = static_cast<c10::DeviceIndex>(cuda.deviceCount());
  if (devices < 2) GTEST_SKIP() << "one GPU";
  const Inputs x = inputs(1, 1000, 1000, 4, 128);
  std::vector<GpuCall> calls;
  std::vector<Attention> libraries;
  for (c10::DeviceIndex i = 0; i < devices; ++i) {
    calls.emplace_back(x, at::kHalf, c10::Device(c10::kCUDA, i));
    libraries.emplace_back(i);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].run(libraries[i]);
    EXPECT_EQ(cuda.getDevice().index(), 0);
    EXPECT_TRUE(at::equal(calls[i].out.cpu(), calls[0].out.cpu()));
  }
}

TEST_F(AttentionLibraryOnGpu, RefusesMissingGpus) {
  sparsereel_attention* handle = nullptr;
  EXPECT_EQ(sparsereel_attention_create(99, &handle), SPARSEREEL_NO_DEVICE);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(cuda::pending_error(), nullptr);
}

}  // namespace
}  // namespace sparsereel::attention

#endif
