// Tests the names of repositories in the models' YAML files, and the commands that download them.
#include "models/store/configs/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/store/configs/config_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::throws_error;
using ::testing::ElementsAre;

std::vector<Published> parsed(const std::string& published) {
  const Architecture tiny = read_architecture(fs::path(SPARSEREEL_SOURCE_DIR) / "configs" / "tiny.yaml");
  const std::string text =
      "match: {class: " + tiny.transformer_class + "}\narchitecture: {transformer: {}}\npublished:\n";
  return parse_architecture(text + published, "a.yaml").published;
}

TEST(PublishedModels, GiveDownloadCommandsForAllFiles) {
  const auto all = parsed(
      "  - {repository: a/b, names: [c/b], gigabytes: 1.5}\n"
      "  - {repository: a/d, files: [x.gguf, y/z.gguf], use: -m d --image p.jpg, with: [{repository: e/f, pattern: "
      "v/*}]}\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].names, ElementsAre("a/b", "c/b"));
  EXPECT_EQ(all[0].gigabytes, 1.5);
  EXPECT_EQ(all[0].use, "-m b");
  EXPECT_EQ(download_command(all[0].named("c/b").downloads[0]), "hf download c/b --local-dir b");
  EXPECT_EQ(download_command(all[1].downloads[0]), "hf download a/d x.gguf y/z.gguf --local-dir d");
  EXPECT_EQ(download_command(all[1].downloads[1]), "hf download e/f --include 'v/*' --local-dir d");
}

TEST(PublishedModels, LocateWrongEntries) {
  for (const char* text : {"  a\n", "  - b\n", "  - {repository: b}\n", "  - {repository: a/b, gigabyte: 1}\n",
                           "  - {repository: a/b, gigabytes: -1}\n", "  - {repository: a/b, with: [{files: x}]}\n",
                           "  - {repository: a/b, with: {a: b}}\n", "  - {repository: a/b, files: {a: b}}\n"})
    EXPECT_TRUE(throws_error([&] { parsed(text); }, {"a.yaml:"})) << text;
}

TEST(PublishedModels, DistinguishRepositoriesFromPaths) {
  for (const char* name : {"THUDM/CogVideoX-2b", "a/b.c_d"}) EXPECT_TRUE(is_repository_name(name)) << name;
  for (const char* path : {"a", "a/b/c", "./a", "../a", "/a", "a/", "a/b.safetensors", "a/b c", "~/a", "a/.b"})
    EXPECT_FALSE(is_repository_name(path)) << path;
}

TEST(PublishedModels, IncludeEveryModelExceptTheTinyOne) {
  for (const Architecture& architecture : architectures_in(fs::path(SPARSEREEL_SOURCE_DIR) / "configs"))
    EXPECT_EQ(architecture.published.empty(), architecture.config.file.stem() == "tiny") << architecture.config.file;
}

}  // namespace
}  // namespace sparsereel::models
