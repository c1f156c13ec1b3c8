// Tests manifests: writing and reading them, manifests of killed processes, the lock, and files that are no manifests.
#include "app/jobs/batch/manifest.h"

#include <gmock/gmock.h>

#include <functional>
#include <optional>

#include "models/files/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::sets {
namespace {

using ::testing::HasSubstr;

nlohmann::json line(int64_t row, const char* state = "done") {
  return {{"row", row},
          {"rows", 9},
          {"output", "a.mp4"},
          {"state", state},
          {"identity", "i"},
          {"sha256", "s"},
          {"bytes", 5},
          {"finished", utc_now()},
          {"seconds", {{"denoise", 1.5}, {"decode", 2}}}};
}

TEST(Manifest, ReadsBackTheLinesThatWereAppended) {
  const test::TemporaryFolder folder;
  {
    ManifestWriter writer(folder.path(), 3);
    writer.append(line(0));
    writer.append(line(1, "failed"));
  }
  std::vector<std::string> warnings;
  const auto entries = read_manifests(folder.path(), warnings);
  EXPECT_EQ(test::names_in(folder.path()), std::vector<std::string>{"manifest.3.jsonl"});
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].output, "a.mp4");
  EXPECT_EQ(entries[0].bytes, 5U);
  EXPECT_EQ(entries[0].seconds.at("denoise"), 1.5);
  EXPECT_EQ(entries[1].state, "failed");
  EXPECT_TRUE(warnings.empty());
}

TEST(Manifest, CutsOffAnIncompleteLineBeforeTheNextAppend) {
  const test::TemporaryFolder folder;
  const std::string whole = line(0).dump() + "\n";
  for (const std::string& left : {std::string("{\"row\":1,"), std::string(10000, 'x')}) {
    test::write_text(folder / "manifest.0.jsonl", whole + left);
    ManifestWriter(folder.path(), 0).append(line(1));
    std::vector<std::string> warnings;
    EXPECT_EQ(read_manifests(folder.path(), warnings).size(), 2U);
    EXPECT_TRUE(warnings.empty());
  }
  test::write_text(folder / "manifest.0.jsonl", "{\"row\"");
  ManifestWriter(folder.path(), 0).append(line(1));
  EXPECT_EQ(test::read_text(folder / "manifest.0.jsonl").find("{\"bytes\""), 0U);
}

TEST(Manifest, StopsTheSetIfItsFileWasMovedOrReplaced) {
  const auto changed_by = [](const std::function<void(const std::filesystem::path&)>& change, const char* how) {
    const test::TemporaryFolder folder;
    const std::filesystem::path inside = folder / "set";
    std::filesystem::create_directory(inside);
    ManifestWriter writer(inside, 1);
    writer.append(line(0));
    change(inside);
    try {
      writer.append(line(1));
    } catch (const models::DiskError& error) {
      return std::string(error.what()).find(how) != std::string::npos;
    }
    return false;
  };
  namespace fs = std::filesystem;
  EXPECT_TRUE(changed_by([](const fs::path& set) { fs::remove(set / "manifest.1.jsonl"); }, "removed"));
  EXPECT_TRUE(changed_by([](const fs::path& set) { fs::rename(set, set.string() + ".moved"); }, "moved"));
  EXPECT_TRUE(changed_by([](const fs::path& set) { fs::resize_file(set / "manifest.1.jsonl", 1); }, "shorter"));
  EXPECT_TRUE(changed_by(
      [](const fs::path& set) {
        fs::remove(set / "manifest.1.jsonl");
        test::write_text(set / "manifest.1.jsonl", "another");
      },
      "replaced"));
  EXPECT_FALSE(changed_by([](const fs::path&) {}, ""));
}

TEST(Manifest, SkipsForeignLinesWithAWarningForEach) {
  std::vector<std::string> warnings;
  nlohmann::json outside = line(2);
  outside["output"] = "../a.mp4";
  nlohmann::json beyond = line(2);
  beyond["row"] = 9;
  const std::string text = line(0).dump() + "\n[]\nnot json\n" + outside.dump() + "\n" + beyond.dump() + "\n" +
                           line(1).dump() + "\n{\"row\":";
  EXPECT_EQ(parse_manifest(text, "m", warnings).size(), 2U);
  ASSERT_EQ(warnings.size(), 5U);
  EXPECT_THAT(warnings[0], HasSubstr("m:2"));
  EXPECT_THAT(warnings[4], HasSubstr("m:7"));
}

TEST(Manifest, SortsTheLinesOfSeveralFilesByTime) {
  const test::TemporaryFolder folder;
  nlohmann::json early = line(0), late = line(1);
  early["finished"] = "2026-01-01T00:00:00.000Z";
  late["finished"] = "2026-01-01T00:00:00.001Z";
  ManifestWriter(folder.path(), 0).append(late);
  ManifestWriter(folder.path(), 1).append(early);
  std::vector<std::string> warnings;
  EXPECT_EQ(read_manifests(folder.path(), warnings).front().row, 0);
}

TEST(Manifest, RefusesASecondWriterWhileTheFirstIsOpen) {
  const test::TemporaryFolder folder;
  std::optional<ManifestWriter> first;
  first.emplace(folder.path(), 0);
  EXPECT_TRUE(test::throws_error([&] { ManifestWriter(folder.path(), 0); }, {"manifest.0.jsonl", "another process"}));
  EXPECT_NO_THROW(ManifestWriter(folder.path(), 1));
  first.reset();
  EXPECT_NO_THROW(ManifestWriter(folder.path(), 0));
}

}  // namespace
}  // namespace sparsereel::app::sets
