// Tests which head of k and v a head of q reads if several heads of q share one.
#include <gtest/gtest.h>

#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {
namespace {

TEST(HeadGroup, IsTheQuotientForEverySize) {
  for (int size = 1; size <= 128; ++size) {
    const HeadGroup group(size);
    for (int head = 0; head < 20000; ++head) ASSERT_EQ(group.of(head), head / size) << head << " by " << size;
    const int most = 1 << 24;  // largest number of heads, counted over all batch entries
    for (int head = most - 1000; head < most; ++head) ASSERT_EQ(group.of(head), head / size) << head << " by " << size;
  }
}

}  // namespace
}  // namespace sparsereel::attention::cuda
