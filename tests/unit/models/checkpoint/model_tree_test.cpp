// Folders as people keep models in them, with files of nothing: only names count.
#include "models/checkpoint/model_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

class ModelTrees : public ::testing::Test {
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

TEST_F(ModelTrees, AreSearchedWhateverTheirFoldersAreCalled) {
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

TEST_F(ModelTrees, CountAFileOnceBehindAllItsNames) {
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

TEST_F(ModelTrees, EndWhereNobodyKeepsModels) {
  write("1/2/3/4/5/6/7/8/a.gguf");
  EXPECT_TRUE(search().whole);
  EXPECT_THAT(search().weights, ::testing::SizeIs(1));
  write("1/2/3/4/5/6/7/8/9/b.gguf");
  EXPECT_FALSE(search().whole);
  EXPECT_THAT(search().weights, ::testing::SizeIs(1));
  EXPECT_THAT(search_tree(folder_ / "none").weights, IsEmpty());
}

}  // namespace
}  // namespace sparsereel::models
