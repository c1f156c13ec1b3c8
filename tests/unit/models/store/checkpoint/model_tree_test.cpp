// Tests how models are found in folders with many models and files. The files are empty, because only names count.
#include "models/store/checkpoint/model_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

class ModelTreeTest : public ::testing::Test {
 protected:
  void write(const std::string& name) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    test::write_text(path, name);
  }
  std::vector<std::string> below(const std::vector<fs::path>& paths) const {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(path.lexically_relative(folder_.path()).string());
    return names;
  }
  ModelTree search() const { return search_tree(folder_.path()); }

  test::TemporaryFolder folder_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(ModelTreeTest, FindsFilesInFoldersOfAnyName) {
  for (const char* name :
       {"a/b c/D/e.safetensors", "f.gguf", ".cache/g.safetensors", "custom_nodes/x/h.pth", "notes.txt",
        "tokens/spiece.model", "pipeline/model_index.json", "pipeline/vae/i.safetensors"})
    write(name);
  const ModelTree tree = search();
  EXPECT_THAT(below(tree.weights), ElementsAre("f.gguf", "a/b c/D/e.safetensors"));
  EXPECT_THAT(below(tree.tokenizers), ElementsAre("tokens"));
  EXPECT_THAT(below(tree.pipelines), ElementsAre("pipeline"));
  EXPECT_TRUE(tree.whole);
}

TEST_F(ModelTreeTest, CountsLinkedFilesOnce) {
  write("models/a.safetensors");
  fs::create_hard_link(folder_ / "models/a.safetensors", folder_ / "b.safetensors");
  fs::create_symlink(folder_ / "b.safetensors", folder_ / "c.safetensors");
  fs::create_directory_symlink(folder_ / "models", folder_ / "unet");
  fs::create_directory_symlink(folder_.path(), folder_ / "models" / "loop");
  EXPECT_THAT(below(search().weights), ElementsAre("b.safetensors"));
  fs::create_hard_link(folder_ / "b.safetensors", folder_ / "b_high.safetensors");
  fs::create_hard_link(folder_ / "b.safetensors", folder_ / "b_low.safetensors");
  EXPECT_THAT(below(search().weights), ElementsAre("b.safetensors", "b_high.safetensors", "b_low.safetensors"));
}

TEST_F(ModelTreeTest, LimitsTheSearchDepth) {
  write("1/2/3/4/5/6/7/8/a.gguf");
  EXPECT_TRUE(search().whole);
  EXPECT_THAT(search().weights, ::testing::SizeIs(1));
  write("1/2/3/4/5/6/7/8/9/b.gguf");
  EXPECT_FALSE(search().whole);
  EXPECT_THAT(search().weights, ::testing::SizeIs(1));
  EXPECT_THAT(search_tree(folder_ / "none").weights, IsEmpty());
}

TEST_F(ModelTreeTest, ListsASplitFileOnce) {
  for (const char* name : {"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00002-of-00002.gguf", "c.gguf"})
    write(name);
  EXPECT_THAT(below(search().weights), ElementsAre("a-00001-of-00002.gguf", "b-00002-of-00002.gguf", "c.gguf"));
}

TEST_F(ModelTreeTest, ResolvesTheSnapshotOfAHuggingFaceCache) {
  const std::string root = "models--Acme--Wan", first = root + "/snapshots/0123", second = root + "/snapshots/4567";
  const auto meant = [&] { return model_folder(folder_ / root).lexically_relative(folder_.path()).string(); };
  write(root + "/snapshots/0123/model_index.json");
  EXPECT_EQ(meant(), first) << "the only one, without refs";
  write(root + "/snapshots/4567/model_index.json");
  EXPECT_TRUE(test::throws_error(meant, {root, "refs/main names none of its snapshots"}));
  fs::create_directories(folder_ / root / "refs");
  test::write_text(folder_ / root / "refs/main", "4567\n");
  EXPECT_EQ(meant(), second);
  fs::remove_all(folder_ / root / "snapshots");
  fs::create_directories(folder_ / root / "snapshots");
  EXPECT_TRUE(test::throws_error(meant, {root, "holds no snapshot"}));
}

TEST_F(ModelTreeTest, AcceptsTheModelIndexAsAPath) {
  write("model/model_index.json");
  EXPECT_EQ(model_folder(folder_ / "model/model_index.json"), folder_ / "model");
  EXPECT_EQ(model_folder(folder_ / "model"), folder_ / "model");
  EXPECT_EQ(model_folder(folder_ / "none/model_index.json"), folder_ / "none/model_index.json");
}

}  // namespace
}  // namespace sparsereel::models
