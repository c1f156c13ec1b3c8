// Tests that an invalid call returns a status and a message with a remedy, and computes nothing.
#include <array>
#include <functional>
#include <limits>

#include "attention/core/check.h"
#include "attention/core/executor.h"
#include "attention/core/refusal.h"
#include "tests/unit/attention/library/caller.h"

namespace sparsereel::attention {
namespace {

using cpu::Case;

/// Changes a valid call with `spoil`, runs it and returns its status. Expects `cause` in the message, and the output to
/// be unchanged.
sparsereel_status refused(const std::function<void(Caller&)>& spoil, const std::string& cause) {
  const Case c({.queries = 100, .keys = 100});
  Caller caller(c);
  spoil(caller);
  const sparsereel_status status = caller.refusal(cause);
  EXPECT_TRUE(std::all_of(caller.out.begin(), caller.out.end(), [](float x) { return std::isnan(x); })) << cause;
  return status;
}

TEST(AttentionRefusals, CoverNullPointers) {
  EXPECT_EQ(refused([](Caller& c) { c.call.q.data = nullptr; }, "q is null"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.k.data = nullptr; }, "k is null"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.v.data = nullptr; }, "v is null"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.out.data = nullptr; }, "out is null"), SPARSEREEL_BAD_ARGUMENT);
  const Case c({.queries = 100, .keys = 100});
  Caller caller(c);
  const size_t bytes = caller.library.workspace_size(caller.call);
  sparsereel_attention* const handle = caller.library.get();
  size_t size = 0;
  EXPECT_EQ(sparsereel_attention_run(handle, &caller.call, nullptr, bytes, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_run(nullptr, &caller.call, &size, bytes, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_run(handle, nullptr, &size, bytes, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_workspace_size(handle, &caller.call, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_workspace_size(nullptr, &caller.call, &size), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_create(SPARSEREEL_CPU, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_call_init(nullptr, sizeof(AttentionCall)), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_describe(handle, &caller.call, nullptr, 0), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_total_blocks(handle, &caller.call, nullptr), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(sparsereel_attention_set_parallel_for(handle, nullptr, nullptr), SPARSEREEL_BAD_ARGUMENT);
  sparsereel_attention_destroy(nullptr);
}

TEST(AttentionRefusals, CoverUnknownBitWidths) {
  EXPECT_EQ(refused([](Caller& c) { c.call.arithmetic = 4; }, "arithmetic is 4"), SPARSEREEL_BAD_ARGUMENT);
  const auto contradict = [](Caller& c) {
    c.call.arithmetic = 16;
    c.call.quantized = 1;
  };
  EXPECT_EQ(refused(contradict, "a quantized call computes every block in 8 bits, but arithmetic is 16"),
            SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, CoverTooSmallWorkspaces) {
  const Case c({.queries = 100, .keys = 100});
  Caller caller(c);
  const size_t bytes = caller.library.workspace_size(caller.call);
  std::vector<char> workspace(bytes);
  EXPECT_EQ(sparsereel_attention_run(caller.library.get(), &caller.call, workspace.data(), bytes - 1, nullptr),
            SPARSEREEL_WORKSPACE_TOO_SMALL);
  const std::string message = sparsereel_message();
  EXPECT_NE(message.find(std::to_string(bytes - 1) + " bytes, this call needs " + std::to_string(bytes)),
            std::string::npos)
      << message;
  EXPECT_TRUE(std::isnan(caller.out[0]));
  EXPECT_EQ(sparsereel_attention_run(caller.library.get(), &caller.call, workspace.data(), bytes, nullptr),
            SPARSEREEL_OK);
}

TEST(AttentionRefusals, AcceptUnalignedWorkspaces) {
  const Case c({.queries = 100, .keys = 100});
  Caller caller(c);
  const std::vector<float> expected = caller.run();
  const size_t bytes = caller.library.workspace_size(caller.call);
  std::vector<char> workspace(bytes + 16, 'x');
  caller.library.run(caller.call, workspace.data() + 5, bytes);
  EXPECT_EQ(caller.out, expected);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(workspace[i], 'x');
  for (size_t i = 5 + bytes; i < workspace.size(); ++i) EXPECT_EQ(workspace[i], 'x');
}

TEST(AttentionRefusals, CoverImpossibleStrides) {
  EXPECT_EQ(refused([](Caller& c) { c.call.q.token_stride = -64; }, "q has a stride of -64"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.out.head_stride = 63; }, "out has a stride of 63"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.out.token_stride = 64; }, "rows overlap"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.out.batch_stride = 0; }, "rows overlap"), SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, IgnoreStridesOfDimensionsOfSizeOne) {
  const Case c({.queries = 70, .keys = 70, .heads = 1, .batch = 1});
  Caller caller(c);
  const std::vector<float> expected = caller.run();
  caller.call.out.batch_stride = caller.call.out.head_stride = 0;
  caller.call.q.batch_stride = -1;
  EXPECT_EQ(caller.run(), expected);
}

TEST(AttentionRefusals, CoverImpossibleSizes) {
  EXPECT_EQ(refused([](Caller& c) { c.call.batch = 0; }, "batch is 0"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.keys = -5; }, "keys is -5"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.kv_heads = 3; }, "kv_heads is 3, heads is 2"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.kv_heads = -1; }, "pass a divisor of heads"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.queries = int64_t{1} << 31; }, "queries is 2147483648"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.head_dim = 8; }, "head_dim is 8"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](Caller& c) { c.call.head_dim = 257; }, "use one from 16 to 256"), SPARSEREEL_UNSUPPORTED);
  EXPECT_EQ(refused([](Caller& c) { c.call.size = 8; }, "sparsereel_attention_call_init()"), SPARSEREEL_BAD_ARGUMENT);
  AttentionCall call;
  EXPECT_EQ(sparsereel_attention_call_init(&call, sizeof call - 1), SPARSEREEL_BAD_ARGUMENT);
}

/// Each size alone is valid, but some products of sizes are not.
TEST(AttentionRefusals, CoverProductsOfSizesThatOverflow) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const Case c({.queries = 100, .keys = 100});
  const std::array<int64_t, 3> sizes = {1, 65'536, kMost};
  size_t refusals = 0;
  for (const int64_t batch : sizes)
    for (const int64_t heads : sizes)
      for (const int64_t queries : sizes)
        for (const int64_t keys : sizes)
          for (const int64_t head_dim : {16, 256}) {
            Caller caller(c);
            caller.call.batch = batch;
            caller.call.heads = heads;
            caller.call.queries = queries;
            caller.call.keys = keys;
            caller.call.head_dim = head_dim;
            const auto blocks = [](int64_t tokens) { return static_cast<double>(tokens / 64 + 1); };
            const double rows = static_cast<double>(batch) * static_cast<double>(heads);
            const double elements = rows * static_cast<double>(std::max(queries, keys) * head_dim);
            const double all = std::max(elements, rows * blocks(queries) * blocks(keys));
            size_t bytes = 0;
            const auto status = sparsereel_attention_workspace_size(caller.library.get(), &caller.call, &bytes);
            int64_t seen = 0;
            const auto same = sparsereel_attention_total_blocks(caller.library.get(), &caller.call, &seen);
            EXPECT_EQ(status, same);
            if (all > 0x1p49) {
              EXPECT_EQ(status, SPARSEREEL_BAD_ARGUMENT) << batch << " " << heads << " " << queries << " " << keys;
              EXPECT_NE(std::string(sparsereel_message()).find("has more than 2^48 elements"), std::string::npos);
              ++refusals;
            } else if (status == SPARSEREEL_OK) {
              EXPECT_GE(static_cast<double>(bytes), 4 * rows * static_cast<double>(keys * head_dim));
              EXPECT_EQ(static_cast<double>(seen),
                        rows * static_cast<double>(blocks_of(queries)) * static_cast<double>(blocks_of(keys)));
            }
          }
  EXPECT_GT(refusals, 100);
}

TEST(AttentionRefusals, CoverStridesThatReachTooFar) {
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max() / 2;
  for (const auto member : {&AttentionCall::q, &AttentionCall::k, &AttentionCall::v, &AttentionCall::out}) {
    EXPECT_EQ(refused([&](Caller& c) { (c.call.*member).token_stride = kFar; }, "has more than 2^48 elements"),
              SPARSEREEL_BAD_ARGUMENT);
    EXPECT_EQ(refused([&](Caller& c) { (c.call.*member).batch_stride = kFar; }, "has more than 2^48 elements"),
              SPARSEREEL_BAD_ARGUMENT);
  }
}

TEST(AttentionRefusals, CoverImpossibleHeadsBeforeTheirPoliciesAreRead) {
  std::array<sparsereel_head_policy, 2> policies{};
  for (const int64_t heads : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    const auto spoil = [&](Caller& c) {
      c.call.heads = heads;
      c.call.policy.heads = policies.data();
    };
    EXPECT_EQ(refused(spoil, "heads is " + std::to_string(heads)), SPARSEREEL_BAD_ARGUMENT);
  }
}

TEST(AttentionRefusals, CoverSizesThatAGpuCannotCount) {
  struct GpuCase {
    int64_t batch, heads, queries, keys, arithmetic;
    bool dense;
    const char* cause;  // null if the sizes are accepted
  };
  constexpr int64_t kList = int64_t{1} << 26;
  const GpuCase cases[] = {{2, 40, 430'000, 430'000, 8, false, nullptr},
                           {1, 1, 100, kList + 1, 16, true, "67108865 tokens on a GPU"},
                           {1, 1, kList + 1, 100, 8, true, "67108865 tokens on a GPU"},
                           {1, 1, 100, kList, 16, true, nullptr},
                           {1, 1, 100, 4'200'000, 8, true, "blocks of 64 tokens"},
                           {1, 1, 4'200'000, 100, 8, true, "blocks of 64 tokens"},
                           {1, 1, 100, 4'200'000, 16, false, "blocks of 64 tokens"},
                           {65'536, 1, 100, 100, 8, true, "65536 batch entries"},
                           {65'535, 65'536, 100, 100, 8, true, "heads of 65535 x 100 tokens"},
                           {4'096, 24, 100, 100, 8, true, nullptr},
                           {4'096, 24, 100, 100, 8, false, "heads with means for dropped blocks"}};
  for (const GpuCase& each : cases) {
    Call call;
    call.batch = each.batch;
    call.heads = each.heads;
    call.queries = each.queries;
    call.keys = each.keys;
    call.head_dim = 64;
    call.policy.dense = each.dense;
    call.policy.arithmetic = each.arithmetic;
    std::string cause;
    try {
      check_gpu_sizes(call);
    } catch (const Refusal& refusal) {
      EXPECT_EQ(refusal.status(), SPARSEREEL_UNSUPPORTED);
      cause = refusal.what();
    }
    if (each.cause == nullptr) {
      EXPECT_EQ(cause, "");
    } else {
      EXPECT_NE(cause.find(each.cause), std::string::npos) << cause << " " << each.cause;
    }
  }
}

TEST(AttentionRefusals, CoverImpossibleNumbersOfThreads) {
  Attention library(SPARSEREEL_CPU);
  for (const int threads : {-1, 1025, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(sparsereel_attention_set_threads(library.get(), threads), SPARSEREEL_BAD_ARGUMENT);
    EXPECT_NE(std::string(sparsereel_message()).find("threads is " + std::to_string(threads)), std::string::npos);
  }
  EXPECT_EQ(sparsereel_attention_set_threads(library.get(), 1024), SPARSEREEL_OK);
}

TEST(AttentionRefusals, CoverImpossiblePoliciesAndMasks) {
  EXPECT_EQ(refused([](Caller& c) { c.call.policy.all.topk = 0; }, "topk is 0"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.policy.dropped = SPARSEREEL_NOTHING; }, "dropped blocks have no means"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.policy.selection_rows = 100; }, "selection_rows is 100"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(
      refused([](Caller& c) { c.call.policy.all.selection = static_cast<sparsereel_selection>(5); }, "selection is 5"),
      SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.element = static_cast<sparsereel_element>(3); }, "element is 3"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.scale = NAN; }, "scale is not finite"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.text_tokens = 101; }, "text_tokens is 101"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([](Caller& c) { c.call.map_rows = 32; }, "map_rows is 32"), SPARSEREEL_BAD_ARGUMENT);
  const std::array<int64_t, 2> lengths = {3, 101};
  EXPECT_EQ(refused([&](Caller& c) { c.call.key_lengths = lengths.data(); }, "from 3 to 101"), SPARSEREEL_BAD_ARGUMENT);
  std::array<sparsereel_head_policy, 2> heads{};
  EXPECT_EQ(refused([&](Caller& c) { c.call.policy.heads = heads.data(); }, "heads[0].topk"), SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, CoverImpossiblePrologues) {
  const std::vector<float> table(100 * 64, 1.0F);
  EXPECT_EQ(refused([&](Caller& c) { c.call.prologue.q_weight = table.data(); }, "norm none"), SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([&](Caller& c) { c.call.prologue.rotary_cos = table.data(); }, "only one of"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([&](Caller& c) { c.call.prologue.rotary_pairs = table.data(); }, "pass the tables"),
            SPARSEREEL_UNSUPPORTED);
  const auto rotated_with_fewer_keys = [&](Caller& c) {
    c.call.prologue.rotary_cos = c.call.prologue.rotary_sin = table.data();
    c.call.keys = 50;
  };
  EXPECT_EQ(refused(rotated_with_fewer_keys, "self-attention only"), SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, CoverImpossiblePrologueParts) {
  const std::vector<float> table(100 * 64, 1.0F);
  const auto by_head = [&](Caller& c) {
    c.call.parts.rotary_positions = c.call.parts.rotary_frequencies = table.data();
  };
  const auto of_text = [&](Caller& c) {
    c.call.prologue.norm = SPARSEREEL_RMS_NORM;
    c.call.parts.text_k_weight = table.data();
  };
  EXPECT_EQ(refused([&](Caller& c) { c.call.parts.rotary_positions = table.data(); }, "only one of rotary_positions"),
            SPARSEREEL_BAD_ARGUMENT);
  EXPECT_EQ(refused([&](Caller& c) { c.call.parts.text_q_weight = table.data(); }, "without a norm"),
            SPARSEREEL_BAD_ARGUMENT);
  const auto beside_tables = [&](Caller& c) {
    by_head(c);
    c.call.prologue.rotary_cos = c.call.prologue.rotary_sin = table.data();
  };
  EXPECT_EQ(refused(beside_tables, "both rotary_frequencies and rotary tables"), SPARSEREEL_BAD_ARGUMENT);
  const auto of_shared_keys = [&](Caller& c) {
    by_head(c);
    c.call.kv_heads = 1;
  };
  EXPECT_EQ(refused(of_shared_keys, "k has fewer heads than q"), SPARSEREEL_BAD_ARGUMENT);
  const auto in_halves = [&](Caller& c) {
    by_head(c);
    c.call.prologue.interleaved = 0;
  };
  EXPECT_EQ(refused(in_halves, "interleaved is not set"), SPARSEREEL_BAD_ARGUMENT);
  const auto across_heads = [&](Caller& c) {
    of_text(c);
    c.call.prologue.across_heads = 1;
  };
  EXPECT_EQ(refused(across_heads, "sets across_heads"), SPARSEREEL_BAD_ARGUMENT);
  const auto biased = [&](Caller& c) {
    of_text(c);
    c.call.prologue.k_bias = table.data();
  };
  EXPECT_EQ(refused(biased, "with a bias"), SPARSEREEL_BAD_ARGUMENT);
  const auto with_fewer_keys = [&](Caller& c) {
    of_text(c);
    c.call.keys = 50;
  };
  EXPECT_EQ(refused(with_fewer_keys, "self-attention only"), SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, CoverMissingDevices) {
  auto* handle = reinterpret_cast<sparsereel_attention*>(1);
  EXPECT_EQ(sparsereel_attention_create(999, &handle), SPARSEREEL_NO_DEVICE);
  EXPECT_EQ(handle, nullptr);
  const std::string message = sparsereel_message();
  EXPECT_NE(message.find("GPU 999"), std::string::npos) << message;
  EXPECT_NE(message.find("the CPU"), std::string::npos) << message;
  EXPECT_EQ(sparsereel_attention_create(-2, &handle), SPARSEREEL_BAD_ARGUMENT);
}

TEST(AttentionRefusals, CoverGpusThatAreTooOld) {
  try {
    check_capability(3, 75);
    ADD_FAILURE() << "accepted";
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status(), SPARSEREEL_NO_DEVICE);
    EXPECT_STREQ(refusal.what(), "attention: GPU 3 has compute capability 7.5");
    EXPECT_EQ(refusal.remedy(), "use a GPU of 8.0 or newer, or the CPU");
  }
  EXPECT_NO_THROW(check_capability(0, 80));
  EXPECT_NO_THROW(check_capability(0, 120));
}

TEST(AttentionRefusals, CoverCallsTooShortToGainOnAGpu) {
  Call call;
  call.batch = 1;
  call.heads = 24;
  call.head_dim = 128;
  call.queries = call.keys = 2000;
  EXPECT_TRUE(is_too_short(call));
  call.policy.dense_operations = 0;
  EXPECT_FALSE(is_too_short(call));
  call.policy.dense_operations = CallPolicy{}.dense_operations;
  call.queries = call.keys = 4096;
  EXPECT_FALSE(is_too_short(call));
  call.queries = call.keys = 2000;
  call.quantized = true;
  EXPECT_FALSE(is_too_short(call));
}

TEST(AttentionRefusals, AreThrownByTheCppInterface) {
  try {
    Attention library(999);
    ADD_FAILURE() << "accepted";
  } catch (const AttentionError& error) {
    EXPECT_EQ(error.status(), SPARSEREEL_NO_DEVICE);
    EXPECT_STREQ(error.what(), sparsereel_message());
  }
}

TEST(AttentionRefusals, HaveStatusesWithNames) {
  for (int status = SPARSEREEL_OK; status <= SPARSEREEL_FAILED; ++status)
    EXPECT_STRNE(sparsereel_status_name(static_cast<sparsereel_status>(status)), "unknown") << status;
  EXPECT_STREQ(sparsereel_status_name(SPARSEREEL_TOO_SHORT), "too short");
  EXPECT_STREQ(sparsereel_status_name(static_cast<sparsereel_status>(77)), "unknown");
}

}  // namespace
}  // namespace sparsereel::attention
