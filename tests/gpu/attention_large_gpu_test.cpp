// Tests attend() on a GPU with more than 2^31 elements of q, whose offsets do not fit into 32 bits.
#include <cmath>

#include "tests/gpu/attend_on_gpu.h"

namespace sparsereel::attention {
namespace {

constexpr int64_t kLargeTokens = 430'000, kLargeHeads = 40, kLargeHeadDim = 128;
static_assert(kLargeTokens * kLargeHeads * kLargeHeadDim > int64_t{1} << 31);
constexpr double kLargeGigabytes = 60;  // of the inputs, the output, and their 8-bit copies

class AttendToManyTokens : public AttendOnGpu {
 protected:
  void SetUp() override {
    AttendOnGpu::SetUp();
    if (IsSkipped()) return;
    const auto free = static_cast<double>(models::obtainable_memory(at::Device(at::kCUDA, 0)));
    if (free < kLargeGigabytes * 1e9) GTEST_SKIP() << "needs " << kLargeGigabytes << " GB of free GPU memory";
    at::manual_seed(1);
    const auto normal = [] {
      return at::randn({1, kLargeTokens, kLargeHeads, kLargeHeadDim}, at::device(at::kCUDA).dtype(at::kBFloat16));
    };
    q_ = normal();
    k_ = normal();
    v_ = normal();
  }

  Result attend_with(Context context) {
    context.policy.dense_operations = 0;
    return attend(q_, k_, v_, context, workspace_);
  }

  /// Returns attention's output [rows, kLargeHeadDim] of one head in fp64, for these queries.
  at::Tensor exact_rows(const at::Tensor& queries, int64_t head) const {
    const auto of_head = [&](const at::Tensor& x) { return x.select(2, head).select(0, 0).to(at::kDouble); };
    const at::Tensor scores =
        of_head(q_).index_select(0, queries).matmul(of_head(k_).t()) / std::sqrt(static_cast<double>(kLargeHeadDim));
    return scores.softmax(1).matmul(of_head(v_));
  }

  at::Tensor q_, k_, v_;  // [1, kLargeTokens, kLargeHeads, kLargeHeadDim] bf16 on the GPU
};

TEST_F(AttendToManyTokens, FindsEveryRow) {
  const Result result = attend_with({.mode = Mode::quantized});
  const at::Tensor queries =
      at::tensor({int64_t{0}, int64_t{1}, int64_t{63}, kLargeTokens / 2, kLargeTokens - 200, kLargeTokens - 1},
                 at::kLong)
          .to(at::kCUDA);
  for (const int64_t head : {int64_t{0}, kLargeHeads / 2, kLargeHeads - 1}) {
    SCOPED_TRACE(result.kernel + ", head " + std::to_string(head));
    const at::Tensor actual = result.out.select(2, head).select(0, 0).index_select(0, queries);
    EXPECT_LT(compare(actual, exact_rows(queries, head).cpu()).relative_l1, 0.06);
  }
}

}  // namespace
}  // namespace sparsereel::attention
