// Tests that a run resumed from its checkpoint gives the same bits, and that checkpoints of other runs are not used.
// Also tests that a run replaces and removes only its own checkpoint.
#include "app/jobs/denoising_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "app/tensor_file.h"
#include "models/request/denoising_state.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kName = "clip.mp4.checkpoint.safetensors";

models::DenoisingState make_state() {
  models::DenoisingState state;
  state.step = 2;
  state.latents = at::arange(24, at::kFloat).reshape({1, 2, 3, 2, 2});
  state.scheduler = {{"last_clean", state.latents + 1}, {"last_sample", state.latents + 2}};
  state.cache = {{"first", at::ones({1, 3, 4})}};
  state.generator = at::make_generator<at::CPUGeneratorImpl>().get_state();
  state.per_step = {{{.total_blocks = 4, .calls = 1}}, {{.total_blocks = 4, .calls = 1}}};
  state.kernel = "of the test";
  return state;
}

class DenoisingCheckpoint : public ::testing::Test {
 protected:
  DenoisingCheckpoint() { save_checkpoint(file_, make_state(), "mine"); }

  OwnCheckpoint find(const std::string& identity = "mine") const {
    return find_checkpoint(folder_ / "clip.mp4", identity, {});
  }

  test::TemporaryFolder folder_;
  const fs::path file_ = folder_ / kName;
};

TEST_F(DenoisingCheckpoint, RestoresTheSavedState) {
  const OwnCheckpoint own = find();
  EXPECT_EQ(own.path, file_);
  EXPECT_THAT(own.passed_over, IsEmpty());
  ASSERT_NE(own.state, nullptr);
  EXPECT_EQ(own.state->step, 2);
  EXPECT_TRUE(own.state->latents.equal(make_state().latents));
  EXPECT_TRUE(own.state->scheduler.at("last_sample").equal(make_state().scheduler.at("last_sample")));
}

TEST_F(DenoisingCheckpoint, KeepsTheFileOfAnotherRecipe) {
  const std::string before = test::read_text(file_);
  const OwnCheckpoint own = find("another");
  EXPECT_EQ(own.state, nullptr);
  EXPECT_EQ(own.path, folder_ / "clip.mp4.checkpoint-2.safetensors");
  EXPECT_THAT(own.passed_over, ElementsAre(HasSubstr("other settings")));
  save_checkpoint(own.path, make_state(), "another");
  EXPECT_EQ(find("another").path, own.path);
  EXPECT_NE(find("another").state, nullptr);
  remove_checkpoints({{folder_ / "clip.mp4", "another"}});
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre(kName));
  EXPECT_EQ(test::read_text(file_), before);
}

TEST_F(DenoisingCheckpoint, KeepsFilesThatAreNotCheckpoints) {
  test::write_text(file_, "somebody else's");
  const at::Tensor frames = at::zeros({1, 2, 2, 3});
  models::write_safetensors(folder_ / "clip.mp4.checkpoint-2.safetensors", {view_of("frames", frames)});
  const OwnCheckpoint own = find();
  EXPECT_EQ(own.path, folder_ / "clip.mp4.checkpoint-3.safetensors");
  EXPECT_EQ(own.passed_over.size(), 2U);
  for (const char* identity : {"mine", ""}) remove_checkpoints({{folder_ / "clip.mp4", identity}});
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("clip.mp4.checkpoint-2.safetensors", kName));
}

TEST_F(DenoisingCheckpoint, IsFoundAndRemovedIfEarlierNumbersAreMissing) {
  const fs::path third = folder_ / "clip.mp4.checkpoint-3.safetensors";
  fs::rename(file_, third);
  EXPECT_EQ(find().path, third);
  EXPECT_NE(find().state, nullptr);
  EXPECT_EQ(find("another").path, file_);
  for (const char* others : {"clip.mp4.checkpoint-02.safetensors", "clip.mp4.checkpoint-1.safetensors",
                             "clip.mp4.checkpoint-2b.safetensors", "clip.checkpoint.safetensors"})
    fs::copy(third, folder_ / others);
  EXPECT_THAT(find("another").passed_over, ElementsAre(HasSubstr("checkpoint-3")));
  remove_checkpoints({{folder_ / "clip.mp4", "mine"}});
  EXPECT_FALSE(fs::exists(third));
  EXPECT_EQ(test::names_in(folder_.path()).size(), 4U);
}

/// A tensor of a checkpoint, which a test can change before it writes the file again.
struct Tensor {
  std::string name;
  at::Tensor values;
};

using Damage = std::function<void(std::vector<Tensor>&, size_t)>;

at::Tensor with_first(at::Tensor values, double first) {
  values.view(-1)[0] = first;
  return values;
}

const std::vector<std::pair<const char*, Damage>> kDamages = {
    {"dropped", [](auto& all, size_t i) { all.erase(all.begin() + static_cast<ptrdiff_t>(i)); }},
    {"renamed", [](auto& all, size_t i) { all[i].name += "x"; }},
    {"flat",
     [](auto& all, size_t i) {
       all[i].values = all[i].values.reshape({1, -1});
     }},
    {"shorter", [](auto& all, size_t i) { all[i].values = all[i].values.flatten().slice(0, 1).contiguous(); }},
    {"empty", [](auto& all, size_t i) { all[i].values = at::empty({0}, all[i].values.options()); }},
    {"half", [](auto& all, size_t i) { all[i].values = all[i].values.to(at::kHalf); }},
    {"int64", [](auto& all, size_t i) { all[i].values = all[i].values.view(-1).to(at::kDouble).view(at::kLong); }},
    {"another value", [](auto& all, size_t i) { all[i].values = with_first(all[i].values, 77); }},
    {"NaN", [](auto& all, size_t i) {
       const bool real = all[i].values.is_floating_point();
       all[i].values = with_first(all[i].values, real ? std::numeric_limits<double>::quiet_NaN() : 255);
     }}};

std::vector<Tensor> tensors_of(const models::TensorFile& file) {
  std::vector<Tensor> all;
  for (const models::TensorEntry& entry : file.entries()) all.push_back({entry.name, copy_of(file, entry)});
  return all;
}

TEST_F(DenoisingCheckpoint, PassesOverDamagedFilesAndRemovesThemWithTheVideo) {
  const models::TensorFile sound(file_);
  const auto metadata = sound.metadata();
  const size_t count = sound.entries().size();
  ASSERT_EQ(count, 7U);
  for (const auto& [name, damage] : kDamages) {
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(std::string(name) + " " + sound.entries()[i].name);
      std::vector<Tensor> damaged = tensors_of(sound);
      damage(damaged, i);
      std::vector<models::TensorView> views;
      for (const Tensor& each : damaged) views.push_back(view_of(each.name, each.values));
      models::write_safetensors(file_, views, metadata);
      const OwnCheckpoint own = find();
      EXPECT_EQ(own.state, nullptr);
      ASSERT_EQ(own.passed_over.size(), 1U);
      EXPECT_THAT(own.passed_over.front(), HasSubstr(std::string(kName) + " is not used: "));
      EXPECT_EQ(own.path, folder_ / "clip.mp4.checkpoint-2.safetensors");
    }
  }
  save_checkpoint(file_, make_state(), "mine");
  std::string text = test::read_text(file_);
  text.back() = static_cast<char>(text.back() ^ 1);
  test::write_text(file_, text);
  EXPECT_THAT(find().passed_over, ElementsAre(HasSubstr("it is damaged")));
  remove_checkpoints({{folder_ / "clip.mp4", "mine"}});
  EXPECT_THAT(test::names_in(folder_.path()), IsEmpty());
}

/// Each checkpoint of this test has the right checksum, but its content contradicts itself.
TEST_F(DenoisingCheckpoint, PassesOverContradictoryStates) {
  using State = models::DenoisingState;
  const std::vector<std::pair<const char*, std::function<void(State&)>>> contradictions = {
      {"steps without layers",
       [](State& state) {
         state.per_step = {{}, {}};
       }},
      {"fewer steps than are counted", [](State& state) { state.per_step.pop_back(); }},
      {"a negative step", [](State& state) { state.step = -1; }},
      {"a redone step that is not done", [](State& state) { state.redone_steps = {2}; }},
      {"a state that is no generator's", [](State& state) { state.generator = at::arange(16, at::kByte); }}};
  for (const auto& [name, change] : contradictions) {
    SCOPED_TRACE(name);
    State state = make_state();
    change(state);
    save_checkpoint(file_, state, "mine");
    const OwnCheckpoint own = find();
    EXPECT_EQ(own.state, nullptr);
    EXPECT_EQ(own.passed_over.size(), 1U);
  }
}

/// The file claims statistics of 2^40 steps with 0 layers each. They take no bytes in the file, so only the checksum
/// shows that the number is wrong.
TEST_F(DenoisingCheckpoint, VerifiesTheChecksumBeforeItTrustsTheSizes) {
  const models::TensorFile sound(file_);
  const auto metadata = sound.metadata();
  std::vector<Tensor> all = tensors_of(sound);
  for (Tensor& each : all)
    if (each.name.starts_with("attention.")) each.values = at::empty({int64_t{1} << 40, 0, 6}, each.values.options());
  std::vector<models::TensorView> views;
  for (const Tensor& each : all) views.push_back(view_of(each.name, each.values));
  models::write_safetensors(file_, views, metadata);
  EXPECT_EQ(find().state, nullptr);
  EXPECT_EQ(find().passed_over.size(), 1U);
}

TEST_F(DenoisingCheckpoint, DetectsDamagedMetadata) {
  const models::TensorFile sound(file_);
  for (const char* key : {"identity", "run", "checksum"}) {
    for (const char* text : {"", "{}", "[1]", "{\"step\": -1}"}) {
      auto metadata = sound.metadata();
      metadata.at(key) = text;
      std::vector<Tensor> all = tensors_of(sound);
      std::vector<models::TensorView> views;
      for (const Tensor& each : all) views.push_back(view_of(each.name, each.values));
      models::write_safetensors(file_, views, metadata);
      EXPECT_EQ(find().state, nullptr) << key << " " << text;
      EXPECT_EQ(find().passed_over.size(), 1U);
    }
  }
}

}  // namespace
}  // namespace sparsereel::app
