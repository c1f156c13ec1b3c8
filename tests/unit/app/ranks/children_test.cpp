// Tests the environment of a rank's process, and which line of its output an error quotes.
#include "app/ranks/children.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/environment.h"

namespace sparsereel::app {
namespace {

using test::environment_of;

TEST(TellingLine, IsTheErrorOfTheChild) {
  EXPECT_EQ(telling_line("warning: a\nerror: b: c\n  remedy: d\n"), "error: b: c");
  EXPECT_EQ(telling_line("error: b\n  remedy: d\nerror: e\n  remedy: f\n \n"), "error: e");
  EXPECT_EQ(telling_line("error: b\n  remedy: d"), "error: b");
  EXPECT_EQ(telling_line("terminate called\n  what():  bad\n"), "  what():  bad");
  EXPECT_EQ(telling_line(" \n"), "");
}

TEST(StartedRank, IsReadFromItsEnvironment) {
  EXPECT_FALSE(find_started_rank(environment_of({})));
  const auto rank = find_started_rank(environment_of({{"SPARSEREEL_RANK", "1"},
                                                      {"SPARSEREEL_RANK_DEVICE", "cuda:1"},
                                                      {"SPARSEREEL_RANK_LINKS", "7:8,-1:-1,9:10"},
                                                      {"SPARSEREEL_RANK_PARENT", "123"}}));
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rank, 1);
  EXPECT_EQ(rank->device, "cuda:1");
  EXPECT_EQ(rank->parent, 123);
  ASSERT_EQ(rank->links.size(), 3U);
  EXPECT_EQ(rank->links[1].data, -1);
  EXPECT_EQ(rank->links[2].control, 10);
}

}  // namespace
}  // namespace sparsereel::app
