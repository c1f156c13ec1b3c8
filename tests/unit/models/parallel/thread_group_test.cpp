// Tests ranks that are threads: the data that they exchange, and that no rank waits for a rank that has ended.
#include "models/parallel/thread_group.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "hilbert/error.h"
#include "models/parallel/metered_group.h"
#include "models/parallel/share.h"
#include "tests/support/golden.h"
#include "tests/support/group_contract.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using ::testing::ElementsAre;

at::Tensor whole(std::vector<int64_t> numbers) {
  return at::tensor(numbers, at::kLong);
}

TEST(ThreadGroup, DeliversWhatEachRankSends) {
  run_in_threads(3, [](Group& group) {
    const int64_t own = group.rank();
    std::vector<at::Tensor> send, receive;
    for (int64_t i = 0; i < 3; ++i) {
      send.push_back(at::full({own + i}, 10 * own + i, at::kLong));  // sizes differ for each pair, and one is 0
      receive.push_back(at::zeros({own + i}, at::kLong));
    }
    group.all_to_all(send, receive);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(receive[static_cast<size_t>(i)].equal(at::full({own + i}, 10 * i + own, at::kLong)));
    std::vector<at::Tensor> all = {at::zeros({1}), at::zeros({2}), at::zeros({3})};
    group.all_gather(at::full({own + 1}, static_cast<double>(own)), all);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(all[static_cast<size_t>(i)].equal(at::full({i + 1}, static_cast<double>(i))));
    const at::Tensor sum = whole({own, 1}), most = whole({own, -own});
    group.all_reduce_sum(sum);
    group.all_reduce_max(most);
    EXPECT_TRUE(sum.equal(whole({3, 3})));
    EXPECT_TRUE(most.equal(whole({2, 0})));
    const at::Tensor told = whole({own});
    group.broadcast(told, 1);
    EXPECT_EQ(told.item<int64_t>(), 1);
  });
}

TEST(ThreadGroup, GivesAllRanksBitwiseEqualSums) {
  std::vector<at::Tensor> sums(3);
  run_in_threads(3, [&](Group& group) {
    const at::Tensor x = at::randn({1000}) * (1 + 100 * group.rank());
    group.all_reduce_sum(x);
    sums[static_cast<size_t>(group.rank())] = x;
  });
  EXPECT_TRUE(sums[0].equal(sums[1]) && sums[0].equal(sums[2]));
}

TEST(ThreadGroup, SplitsByColor) {
  run_in_threads(5, [](Group& group) {
    const auto some = group.split(group.rank() % 2);
    EXPECT_EQ(some->size(), group.rank() % 2 == 0 ? 3 : 2);
    EXPECT_EQ(some->rank(), group.rank() / 2);
    const at::Tensor sum = whole({group.rank()});
    some->all_reduce_sum(sum);
    EXPECT_EQ(sum.item<int64_t>(), group.rank() % 2 == 0 ? 6 : 4);
  });
}

void exchange(Group& group) {
  group.all_reduce_sum(at::zeros({1}));
}

TEST(ThreadGroup, EndsOtherRanksIfOneThrows) {
  std::atomic<int> ended = 0;
  const auto fail = [&] {
    run_in_threads(4, [&](Group& group) {
      const auto half = group.split(group.rank() % 2);
      if (group.rank() == 2) throw std::runtime_error("no more paper");
      // Rank 0 waits for the ranks of its half. All other ranks wait for all ranks.
      EXPECT_TRUE(test::throws_error([&] { exchange(group.rank() == 0 ? *half : group); }, {"rank 2: no more paper"}));
      ++ended;
    });
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(ended, 3);
}

TEST(ThreadGroup, DoesNotWaitForRanksThatLeftOrNeverCame) {
  run_in_threads(3, [](Group& group) {
    if (group.rank() == 1) return;
    EXPECT_TRUE(test::throws_error([&] { exchange(group); }, {"rank 1: it has left"}));
    EXPECT_TRUE(test::throws_error([&] { exchange(group); }, {"rank 1: it has left"}));
  });
  const auto groups = make_thread_groups(2, std::chrono::milliseconds(20));
  EXPECT_TRUE(test::throws_error([&] { exchange(*groups[0]); }, {"rank 1: it did not arrive within 20 ms"}));
}

TEST(ThreadGroup, WritesIntoWindowsOfOtherRanks) {
  for (const int64_t size : {1, 2, 3}) {
    run_in_threads(size, [](Group& group) {
      EXPECT_TRUE(test::puts_into_windows(group, at::kCPU));
      const auto part = group.split(group.rank() % 2);
      ExchangeMeter meter(at::kCPU);
      MeteredGroup metered(part, meter);
      EXPECT_TRUE(test::puts_into_windows(metered, at::kCPU));
      EXPECT_GT(meter.take(), 0);
    });
  }
}

TEST(SplitGroups, GiveEachPassItsOwnRanksIfTheirNumberIsEven) {
  run_in_threads(4, [](Group& group) {
    const SplitGroups share = share_of(&group, 2);
    EXPECT_EQ(share.passes->rank(), group.rank() / 2);
    EXPECT_EQ(share.tokens->rank(), group.rank() % 2);
    EXPECT_EQ(share.tokens->size(), 2);
    const SplitGroups unguided = share_of(&group, 1);
    EXPECT_EQ(unguided.passes, nullptr);
    EXPECT_EQ(unguided.tokens->size(), 4);
  });
  run_in_threads(2, [](Group& group) {
    const SplitGroups share = share_of(&group, 2);
    EXPECT_EQ(share.tokens, nullptr);
    EXPECT_EQ(share.passes->size(), 2);
  });
  run_in_threads(3, [](Group& group) { EXPECT_EQ(share_of(&group, 2).tokens->size(), 3); });
}

TEST(SplitGroups, AreKnownInAdvance) {
  EXPECT_EQ(splits_of_shares(4, 2), (std::vector<std::vector<int64_t>>{{0, 0, 1, 1}, {0, 1, 0, 1}}));
  EXPECT_TRUE(splits_of_shares(2, 2).empty());
  EXPECT_TRUE(splits_of_shares(3, 2).empty());
  EXPECT_TRUE(splits_of_shares(4, 1).empty());
  EXPECT_TRUE(splits_of_shares(1, 2).empty());
}

/// Imitates a group that was aborted: its calls return without exchanging anything.
class AbortedGroup final : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  void all_to_all(std::span<const at::Tensor>, std::span<const at::Tensor>) override {}
  void all_gather(const at::Tensor&, std::span<const at::Tensor>) override {}
  void all_reduce_sum(const at::Tensor&) override {}
  void all_reduce_max(const at::Tensor&) override {}
  void broadcast(const at::Tensor&, int64_t) override {}
  std::shared_ptr<Group> split(int64_t) override { return nullptr; }
  Windows* windows(int64_t, at::Device) override { return nullptr; }
  void close_windows() override {}
  void abort(const std::string&) noexcept override {}
  void check() const override { throw run_failure("rank 1 is gone", "start it again"); }
};

TEST(SplitGroups, IgnoreTheResultOfAnAbortedCall) {
  AbortedGroup group;
  EXPECT_TRUE(test::throws_error([&] { any_rank(true, &group, at::kCPU); }, {"rank 1 is gone"}));
}

TEST(SplitGroups, DivideEverythingIntoNearlyEqualSlices) {
  for (const int64_t count : {3, 7, 30, 1001}) {
    for (const int64_t ranks : {1, 2, 3}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Slice slice = slice_of(count, ranks, rank);
        EXPECT_EQ(slice.first, next);
        EXPECT_LE(std::abs(slice.count - count / ranks), 1);
        next += slice.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(SplitGroups, GatherSlicesInRankOrder) {
  run_in_threads(3, [](Group& group) {
    const at::Tensor all = at::arange(2 * 7 * 3).view({2, 7, 3});
    const Slice own = slice_of(7, &group);
    EXPECT_TRUE(gather_slices(all.narrow(1, own.first, own.count), 1, 7, &group).equal(all));
  });
}

TEST(SplitGroups, RefuseMoreRanksThanHeads) {
  check_ranks(30, 1, 30, 1000);
  check_ranks(60, 2, 30, 1000);  // 30 ranks for each pass
  check_ranks(8, 2, 30, 1000);   // 4 ranks for each pass; a rank has 7 or 8 heads
  EXPECT_TRUE(test::throws_error(
      [] { check_ranks(3, 2, 2, 1000); },
      {"3 ranks cannot share this video: 3 of them share a guidance pass, which has only 2 attention heads"}));
  EXPECT_TRUE(test::throws_error([] { check_ranks(6, 2, 12, 2); },
                                 {"3 of them share a guidance pass, which has only 2 tokens"}));
}

TEST(SplitGroups, SuggestAPossibleNumberOfRanks) {
  const auto remedy = [](int64_t ranks, int64_t passes) -> std::string {
    try {
      check_ranks(ranks, passes, 2, 1000);
    } catch (const Error& error) {
      return error.remedy();
    }
    return "";
  };
  for (const int64_t ranks : {1, 2, 4}) EXPECT_EQ(remedy(ranks, 2), "") << ranks;
  for (const int64_t ranks : {3, 5, 6}) EXPECT_EQ(remedy(ranks, 2), "use at most 2 ranks, or an even number up to 4");
  EXPECT_EQ(remedy(3, 1), "use at most 2 ranks");
}

}  // namespace
}  // namespace sparsereel::models
