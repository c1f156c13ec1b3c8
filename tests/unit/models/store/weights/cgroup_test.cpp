// Tests how much memory a container's limits leave. The control groups are imitated by files in a temporary folder.
#include "models/store/weights/cgroup.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::write_text;

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

class Cgroup : public ::testing::Test {
 protected:
  uint64_t available(const std::string& membership) const {
    write_text(folder_ / "membership", membership);
    return available_by_cgroup(folder_ / "membership", folder_.path());
  }
  void group(const std::string& name, const std::string& limit, const std::string& usage, const std::string& stat) {
    write_text(folder_ / name / "memory.max", limit + "\n");
    write_text(folder_ / name / "memory.current", usage + "\n");
    write_text(folder_ / name / "memory.stat", stat);
  }

  test::TemporaryFolder folder_;
};

TEST_F(Cgroup, CountsFilePagesAsAvailable) {
  group("box", "1000", "900", "anon 200\nfile 700\ninactive_file 300\nactive_file 400\nshmem 0\n");
  EXPECT_EQ(available("0::/box\n"), 800U);
  write_text(folder_ / "memory/box/memory.limit_in_bytes", "1000\n");
  write_text(folder_ / "memory/box/memory.usage_in_bytes", "900\n");
  write_text(folder_ / "memory/box/memory.stat",
             "inactive_file 1\nactive_file 2\ntotal_inactive_file 300\ntotal_active_file 350\n");
  EXPECT_EQ(available("12:cpu:/else\n5:memory:/box\n"), 750U);
}

TEST_F(Cgroup, UsesTheTightestLimit) {
  group("pod", "1000", "700", "");
  group("pod/box", "800", "100", "");
  EXPECT_EQ(available("0::/pod/box\n"), 300U);
  group("pod/box", "800", "900", "");
  EXPECT_EQ(available("0::/pod/box\n"), 0U);
}

TEST_F(Cgroup, KnowsTheTightestLimitWhateverIsInUse) {
  const auto limit = [&](const std::string& membership) {
    write_text(folder_ / "membership", membership);
    return limit_of_cgroup(folder_ / "membership", folder_.path());
  };
  group("pod", "1000", "700", "");
  group("pod/box", "max", "100", "");
  EXPECT_EQ(limit("0::/pod/box\n"), 1000U);
  EXPECT_EQ(limit("0::/nowhere\n"), kAll);
}

TEST_F(Cgroup, ReportsNoLimitIfNoneIsSet) {
  EXPECT_EQ(available("0::/nowhere\n"), kAll);
  group("box", "max", "900", "");
  EXPECT_EQ(available("0::/box\n"), kAll);
  EXPECT_EQ(available(""), kAll);
}

}  // namespace
}  // namespace sparsereel::models
