// Tests what this rank does when another rank ends, in each stage of a run.
#include "app/ranks/end_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "tests/support/temporary_folder.h"
#include "tests/support/wait_until.h"

namespace sparsereel::app {
namespace {

using Groups = std::pair<std::shared_ptr<models::SocketGroup>, std::shared_ptr<models::SocketGroup>>;

Groups two_ranks() {
  const auto links = models::local_links(2);
  auto second = std::async(std::launch::async, [&] { return models::SocketGroup::connect(1, links[1], "second"); });
  auto first = models::SocketGroup::connect(0, links[0], "first");
  return {std::move(first), second.get()};
}

TEST(EndWatch, NeedsTheOthersOnlyWhileItWorks) {
  const auto [first, second] = two_ranks();
  EndWatch watch(0);
  EXPECT_FALSE(watch.is_working()) << "the ranks have not met";
  watch.rest();
  watch.connected(first);
  EXPECT_TRUE(watch.is_working());
  watch.rest();
  EXPECT_FALSE(watch.is_working());
  watch.work();
  EXPECT_TRUE(watch.is_working());
  watch.leave();
  watch.work();
  EXPECT_FALSE(watch.is_working()) << "it has left";
}

TEST(EndWatch, LetsAnIdleRankContinueWhenTheGroupEnds) {
  const auto [first, second] = two_ranks();
  EndWatch watch(0);
  watch.connected(first);
  watch.rest();
  second->end(run_failure("no more", "begin again"));
  EXPECT_TRUE(test::wait_until([&] { return first->ended(); }));
  watch.leave();  // after this call, the end of a rank does not end this process
}

TEST(EndWatch, TellsTheGroupHowAChildEnded) {
  const auto [first, second] = two_ranks();
  EndWatch watch(0);
  watch.connected(first);
  watch.child_died(1, "rank 1 (second)", "");
  EXPECT_FALSE(first->ended()) << "it ended well";
  watch.rest();
  watch.child_died(1, "rank 1 (second)", "was killed by signal 9");
  EXPECT_TRUE(test::throws_error([&] { first->check(); }, {"rank 1 (second)", "was killed by signal 9"}));
}

TEST(EndWatch, RemembersADeathBeforeTheRanksMeet) {
  EndWatch watch(0);
  EXPECT_EQ(watch.early_death(), "");
  watch.child_died(1, "rank 1 (second)", "was killed by signal 9");
  EXPECT_EQ(watch.early_death(), "rank 1 (second) was killed by signal 9");
}

}  // namespace
}  // namespace sparsereel::app
