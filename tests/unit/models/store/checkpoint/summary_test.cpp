// Tests what `inspect` reports about a checkpoint.
#include "models/store/checkpoint/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryFolder;
using test::write_text;

const fs::path kPipeline = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";

TEST(Summary, AddsUpTheComponents) {
  const CheckpointSummary summary = summarize(Checkpoint::open(kPipeline));
  EXPECT_EQ(summary.family, "CogVideoX");
  EXPECT_EQ(summary.pipeline_class, "CogVideoXPipeline");
  ASSERT_EQ(summary.components.size(), 5U);
  uint64_t parameters = 0, bytes = 0;
  for (const ComponentSummary& component : summary.components) {
    parameters += component.parameters;
    bytes += component.bytes;
    uint64_t by_dtype = 0, in_files = 0;
    for (const auto& [dtype, count] : component.dtypes) by_dtype += count;
    for (const FileSummary& file : component.files) in_files += file.bytes;
    EXPECT_EQ(by_dtype, component.parameters) << component.name;
    EXPECT_GE(in_files, component.bytes) << component.name;
  }
  EXPECT_EQ(summary.parameters(), parameters);
  EXPECT_EQ(summary.bytes(), bytes);
  EXPECT_GT(parameters, 0U);
}

TEST(Summary, ReportsKnownFp8Sizes) {
  const uint64_t transformer = 1000;
  const CheckpointSummary summary = summarize(Checkpoint::open(kPipeline), {}, {{"transformer", transformer}});
  const json components = to_json(summary)["components"];
  for (const json& component : components)
    EXPECT_EQ(component.value("fp8_bytes", 0), component["name"] == "transformer" ? 1000 : 0);
}

TEST(Summary, UsesAGivenVideoSize) {
  const CheckpointSummary usual = summarize(Checkpoint::open(kPipeline)),
                          larger = summarize(Checkpoint::open(kPipeline), {.width = 128, .frames = 17});
  EXPECT_EQ(larger.width, 128);
  EXPECT_EQ(larger.height, usual.height);
  EXPECT_EQ(larger.frames, 17);
}

TEST(Summary, DistinguishesModelVariants) {
  const TemporaryFolder folder;
  fs::copy(kPipeline, folder.path(), fs::copy_options::recursive);
  const auto variant = [&](bool rotary, const json& patch_size_t) {
    json config = read_json(folder / "transformer/config.json");
    config["use_rotary_positional_embeddings"] = rotary;
    config["patch_size_t"] = patch_size_t;
    write_text(folder / "transformer/config.json", config.dump());
    return summarize(Checkpoint::open(folder.path())).variant;
  };
  EXPECT_EQ(variant(false, nullptr).substr(0, 2), "2b");
  EXPECT_EQ(variant(true, nullptr).substr(0, 2), "5b");
  EXPECT_EQ(variant(true, 2).substr(0, 3), "1.5");
}

TEST(Summary, WritesValidJsonForAnyPath) {
  const TemporaryFolder folder;
  const fs::path odd = folder / "\xff\xfe";
  fs::copy(kPipeline, odd, fs::copy_options::recursive);
  const json parsed = json::parse(to_json(summarize(Checkpoint::open(odd))).dump());
  EXPECT_EQ(parsed["family"], "CogVideoX");
  EXPECT_EQ(parsed["components"].size(), 5U);
}

TEST(Families, AreFoundByPipelineClass) {
  ASSERT_NE(find_family("CogVideoXPipeline"), nullptr);
  EXPECT_EQ(find_family("CogVideoXPipeline")->name, "CogVideoX");
  EXPECT_EQ(find_family("StableDiffusionPipeline"), nullptr);
}

}  // namespace
}  // namespace sparsereel::models
