// Tests several ranks that each compute a part of the heads and tokens, and compares them with one rank. The ranks are
// threads that use the same stream of one GPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "models/engine/components.h"
#include "models/parallel/share.h"
#include "models/parallel/thread_group.h"
#include "models/request/attention_run.h"
#include "models/request/run.h"
#include "models/vae/row_split.h"
#include "tests/gpu/attend_on_gpu.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::attention {
namespace {

constexpr int64_t kAllHeads = 5;

class HeadPartsOnGpu : public AttendOnGpu {
 protected:
  /// Adds a prologue with a rotary embedding and with a norm across all heads, which includes the heads of other ranks.
  static Context with_prologue(Context context, int64_t video, int64_t head_dim) {
    Prologue& prologue = context.prologue;
    prologue.norm = Prologue::Norm::rms;
    prologue.across_heads = true;
    prologue.q_weight = at::rand({kAllHeads * head_dim}) + 0.5;
    prologue.k_weight = at::rand({kAllHeads * head_dim}) + 0.5;
    const at::Tensor angles = at::randn({video, head_dim / 2}).repeat_interleave(2, 1);
    prologue.rotary_cos = angles.cos();
    prologue.rotary_sin = angles.sin();
    return context;
  }

  static Result counted(const Inputs& x, const Context& context) {
    Workspace workspace;
    Result result = attend(x.q, x.k, x.v, context, workspace);
    std::vector<Statistics> layers(1);
    collect_counts(workspace, layers);
    result.statistics += layers[0];
    return result;
  }

  static void check(const Inputs& host, Context context) {
    const auto move = [](const at::Tensor& t) { return t.to(at::kCUDA, at::kBFloat16); };
    const Inputs x{.q = move(host.q), .k = move(host.k), .v = move(host.v)};
    context.prologue = on_device(context.prologue);
    context.policy.dense_operations = 0;
    const Result whole = counted(x, context);
    Statistics sum;
    std::mutex mutex;
    models::run_in_threads(3, [&](models::Group& group) {
      const models::Slice heads = models::slice_of(kAllHeads, &group);
      const Result result = counted(heads_of(x, heads), part_of(context, x, heads, group));
      const std::lock_guard lock(mutex);
      const at::Tensor expected = whole.out.narrow(2, heads.first, heads.count);
      EXPECT_LT(compare(result.out, expected.to(at::kCPU, at::kFloat)).relative_l1, 2e-3) << group.rank();
      sum += result.statistics;
    });
    EXPECT_EQ(sum.total_blocks, whole.statistics.total_blocks);
    EXPECT_EQ(sum.kept_blocks, whole.statistics.kept_blocks);
    EXPECT_EQ(sum.mean_blocks, whole.statistics.mean_blocks);
  }

 private:
  static Inputs heads_of(const Inputs& x, const models::Slice& heads) {
    const auto some = [&](const at::Tensor& t) { return t.narrow(2, heads.first, heads.count); };
    return {.q = some(x.q), .k = some(x.k), .v = some(x.v)};
  }

  static Context part_of(Context context, const Inputs& x, const models::Slice& heads, models::Group& group) {
    Prologue& prologue = context.prologue;
    if (prologue.across_heads) {
      prologue.q_moments = token_moments(prologue, x.q);
      prologue.k_moments = token_moments(prologue, x.k);
      const int64_t head_dim = x.q.size(3);
      for (at::Tensor* t : {&prologue.q_weight, &prologue.k_weight})
        *t = t->narrow(0, heads.first * head_dim, heads.count * head_dim);
    }
    const auto sum = [&group, device = x.q.device()](int64_t* counts, int64_t count) {
      group.all_reduce_sum(at::from_blob(counts, {count}, at::TensorOptions().dtype(at::kLong).device(device)));
    };
    context.part = HeadPart{.first = heads.first, .all = kAllHeads, .alike = true, .sum = sum};
    return context;
  }
};

TEST_F(HeadPartsOnGpu, KeepTheSameBlocksAsACallWithAllHeads) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t arithmetic : {8, 16}) {
      for (const double topk : {0.05, 0.12, 0.5}) {
        SCOPED_TRACE(::testing::Message() << head_dim << ", " << arithmetic << " bits, " << topk);
        Context context{.mode = Mode::sparse, .text_tokens = 20};
        context.policy.arithmetic = arithmetic;
        context.policy.defaults.topk = topk;
        check(video(2, 2520, 2520, kAllHeads, head_dim), with_prologue(context, 2500, head_dim));
      }
    }
  }
}

TEST_F(HeadPartsOnGpu, KeepTheSameBlocksByABlockErrorBoundAsACallWithAllHeads) {
  for (const int64_t head_dim : {64, 128}) {
    for (const double bound : {0.02, 0.05}) {
      SCOPED_TRACE(::testing::Message() << head_dim << ", " << bound);
      Context context{.mode = Mode::sparse, .text_tokens = 20};
      context.policy.defaults.selection = Selection::block_error;
      context.policy.defaults.block_error = bound;
      check(video(2, 2520, 2520, kAllHeads, head_dim), with_prologue(context, 2500, head_dim));
    }
  }
}

TEST_F(HeadPartsOnGpu, GiveTheSameQuantizedAndFullAttentionAsACallWithAllHeads) {
  check(video(2, 1500, 1500, kAllHeads, 64), with_prologue({.mode = Mode::quantized}, 1500, 64));
  check(video(1, 1500, 1500, kAllHeads, 128), with_prologue({.mode = Mode::full}, 1500, 128));
}

TEST_F(HeadPartsOnGpu, ComputeTheSameMomentsAsTheCpu) {
  const Inputs x = inputs(2, 300, 300, kAllHeads, 64);
  for (const auto norm : {Prologue::Norm::rms, Prologue::Norm::layer}) {
    Prologue prologue;
    prologue.norm = norm;
    prologue.across_heads = true;
    const at::Tensor gpu = token_moments(prologue, x.q.to(at::kCUDA, at::kBFloat16));
    EXPECT_LT((gpu.cpu() - token_moments(prologue, x.q)).abs().max().item<double>(), 1e-5);
  }
}

}  // namespace
}  // namespace sparsereel::attention

namespace sparsereel::models {
namespace {

at::Tensor forward(const test::ParityCase& one, attention::Mode mode, Group* group) {
  const c10::InferenceMode inference;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  const test::Golden golden(one.family->folder + "dit_golden");
  AttentionRun run;
  run.mode = mode;
  run.tokens = group;
  run.policy.dense_operations = 0;
  const auto transformer = load_transformer(test::transformer_component(one), at::kCUDA, at::kBFloat16);
  const test::TransformerForward given = test::transformer_forward(one, golden, options);
  return transformer->forward(given.latents, given.conditioning, given.timesteps, run).cpu();
}

TEST(TokensOverRanksOnGpu, GiveThePredictionOfOneRank) {
  std::string reason;
  if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
  for (const test::ParityCase& one : test::parity_cases("dit_cases.json")) {
    const auto heads = one.content["config"]["num_attention_heads"].get<int64_t>();
    if (heads < 2) continue;
    for (const auto mode : {attention::Mode::full, attention::Mode::quantized, attention::Mode::sparse}) {
      SCOPED_TRACE(one.family->name + " " + one.name + " " + std::string(attention::name(mode)));
      const at::Tensor alone = forward(one, mode, nullptr);
      run_in_threads(heads, [&](Group& group) {
        EXPECT_TRUE(test::close_to(forward(one, mode, &group), alone, 3e-2)) << group.rank();
      });
    }
  }
}

at::Tensor decoded(Vae& vae, const at::Tensor& latents, const RowSplit* rows) {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> pieces;
  vae.decode(latents, {.rows = rows},
             [&](const at::Tensor& frames) { pieces.push_back(frames.to(at::kCPU, at::kFloat)); }, {});
  return pieces.empty() ? at::Tensor() : at::cat(pieces, 2);
}

TEST(DecodingOverRanksOnGpu, GivesTheFramesOfOneRank) {
  std::string reason;
  if (!cuda_available(&reason)) GTEST_SKIP() << "no GPU: " << reason;
  for (const test::ParityCase& one : test::parity_cases("vae_cases.json")) {
    const at::Tensor golden = test::Golden(one.family->folder + "vae_golden")[one.name + ".latents"];
    for (const auto dtype : {at::kFloat, at::kHalf}) {
      SCOPED_TRACE(::testing::Message() << one.family->name << " " << one.name << " " << dtype);
      const auto vae = load_vae(test::vae_component(*one.family, one.content["vae"]), at::kCUDA, dtype);
      const at::Tensor latents = golden.to(at::kCUDA, dtype);
      const at::Tensor alone = decoded(*vae, latents, nullptr);
      const int64_t ranks = std::min<int64_t>(3, latents.size(3));
      run_in_threads(ranks, [&](Group& group) {
        const RowSplit rows(group, latents.size(3), at::kCUDA);
        const at::Tensor shared = decoded(*vae, latents, &rows);
        ASSERT_EQ(shared.defined(), rows.is_first());
        if (!shared.defined()) return;
        if (dtype == at::kFloat) {
          EXPECT_TRUE(test::close_to(shared, alone, 1e-4));
        } else {  // ranks sum in another order, which rounds some values the other way
          EXPECT_LT(((shared - alone).square().mean() / alone.square().mean()).sqrt().item<double>(), 0.01);
        }
      });
    }
  }
}

}  // namespace
}  // namespace sparsereel::models
