// Tests the tiny model's classifier on clips that this file draws. Also tests files that hold no classifier, and how
// the classifier reads prompts.
#include "app/lab/bench/classifier.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/text_file.h"
#include "app/tensor_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using ::testing::ElementsAre;

const std::string kFolder = std::string(SPARSEREEL_SOURCE_DIR) + "/assets/tiny-training";

at::Tensor color(float r, float g, float b) {
  return at::tensor({r, g, b});
}

/// Returns 33 frames of 256 x 256 in which a square of 60 x 60 pixels moves. Its center goes from `from` to `to`.
at::Tensor square(const at::Tensor& paint, const at::Tensor& ground, std::array<double, 2> from,
                  std::array<double, 2> to) {
  constexpr int64_t frames = 33, side = 256;
  const at::Tensor u = at::linspace(0, 1, frames).view({frames, 1, 1});
  const at::Tensor y = at::arange(side, at::kFloat).view({1, side, 1}),
                   x = at::arange(side, at::kFloat).view({1, 1, side});
  const at::Tensor dx = (x - (from[0] + (to[0] - from[0]) * u)).abs(),
                   dy = (y - (from[1] + (to[1] - from[1]) * u)).abs();
  const at::Tensor inside = at::logical_and(dx < 30, dy < 30).unsqueeze(3);
  return at::where(inside, paint, ground).contiguous();
}

TEST(Classifier, RecognizesShapeColorBackgroundAndMotion) {
  const Classifier classifier(kFolder + "/judge.safetensors");
  const at::Tensor red = color(0.9F, 0.1F, 0.12F), blue = color(0.08F, 0.18F, 0.88F);
  const at::Tensor white = color(0.93F, 0.93F, 0.94F), gray = color(0.52F, 0.53F, 0.55F);
  EXPECT_EQ(classifier.read(square(red, white, {70, 128}, {190, 128})),
            traits_of("a red square moving to the right on a white background"));
  EXPECT_EQ(classifier.read(square(blue, gray, {128, 190}, {128, 70})),
            traits_of("a blue box rising on a gray background"));
  EXPECT_EQ(classifier.read(square(red, gray, {128, 128}, {128, 128})), traits_of("a red square resting on gray"));
}

TEST(Classifier, AcceptsClipsOfAnyLengthAndSize) {
  const Classifier classifier(kFolder + "/judge.safetensors");
  const at::Tensor clip = square(color(0.9F, 0.1F, 0.12F), color(0.93F, 0.93F, 0.94F), {70, 128}, {190, 128});
  const at::Tensor shorter = clip.slice(0, 0, 33, 2).slice(1, 0, 256, 2).slice(2, 0, 256, 2);
  EXPECT_EQ(classifier.read(shorter), classifier.read(clip));
}

TEST(Classifier, NamesTheTensorThatIsWrongInItsFile) {
  const TemporaryFolder folder;
  const at::Tensor ones = at::ones({24}, at::kHalf);
  models::write_safetensors(folder / "a.safetensors", {view_of("body.0.bias", ones)});
  EXPECT_TRUE(
      throws_error([&] { const Classifier classifier(folder / "a.safetensors"); }, {"a.safetensors", "is missing"}));
  const models::TensorFile good(kFolder + "/judge.safetensors");
  std::vector<at::Tensor> kept;
  std::vector<models::TensorView> views;
  for (const models::TensorEntry& entry : good.entries()) {
    kept.push_back(copy_of(good, entry));
    views.push_back(view_of(entry.name, kept.back()));
  }
  views.push_back(view_of("more", ones));
  models::write_safetensors(folder / "b.safetensors", views);
  EXPECT_TRUE(throws_error([&] { const Classifier classifier(folder / "b.safetensors"); },
                           {"b.safetensors", "no tensor more"}));
  views.back() = view_of("body.13.bias", ones);
  std::erase_if(views, [&, first = true](const models::TensorView& view) mutable {
    return view.name == "body.13.bias" && std::exchange(first, false);
  });
  models::write_safetensors(folder / "c.safetensors", views);
  EXPECT_TRUE(
      throws_error([&] { const Classifier classifier(folder / "c.safetensors"); }, {"c.safetensors", "body.13.bias"}));
  EXPECT_TRUE(throws_error([&] { const Classifier classifier(folder / "none.safetensors"); }, {"none.safetensors"}));
}

TEST(Classifier, IsFoundBesideItsModel) {
  const TemporaryFolder folder;
  const std::filesystem::path model = folder / "model";
  std::filesystem::create_directory(model);
  EXPECT_TRUE(classifier_beside(model).empty());
  EXPECT_TRUE(classifier_beside(folder / "none").empty());
  test::write_text(folder / "model-training/judge.safetensors", "");
  EXPECT_EQ(classifier_beside(model).filename(), "judge.safetensors");
  EXPECT_EQ(classifier_beside(model.string() + "/"), classifier_beside(model));
}

TEST(Traits, AreReadFromAllFormsOfPrompts) {
  // The four numbers are indexes from 0 into these lists. Shape: circle square triangle ring star. Color: red orange
  // yellow green blue purple white black. Background: white black gray blue green yellow. Motion: right left up down
  // grow shrink spin still.
  EXPECT_THAT(traits_of("a red circle moving to the right on a blue background"), ElementsAre(0, 0, 3, 0));
  EXPECT_THAT(traits_of("the blue triangle slides to the right in front of a white wall"), ElementsAre(2, 4, 0, 0));
  EXPECT_THAT(traits_of("On a green background, a white square moves from left to right."), ElementsAre(1, 6, 4, 0));
  EXPECT_THAT(traits_of("a video of a red hoop moving to the left on green"), ElementsAre(3, 0, 4, 1));
  EXPECT_THAT(traits_of("a big green donut standing still on a yellow background"), ElementsAre(3, 3, 5, 7));
  EXPECT_THAT(traits_of("one yellow star turning around against a black background"), ElementsAre(4, 2, 1, 6));
}

TEST(Traits, AreUnknownIfThePromptDoesNotMentionThem) {
  EXPECT_THAT(traits_of("a dog chases the moon"), ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(traits_of("a purple star"), ElementsAre(4, 5, -1, -1));
  EXPECT_THAT(traits_of(""), ElementsAre(-1, -1, -1, -1));
}

TEST(Traits, AreKnownForEveryPromptOfTheTestSet) {
  std::istringstream lines(read_text(std::string(SPARSEREEL_SOURCE_DIR) + "/assets/prompts/tiny-200.txt"));
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_THAT(traits_of(line), ::testing::Each(::testing::Ge(0))) << line;
  EXPECT_EQ(count, 200);
}

TEST(Verdicts, CountTheTraitsThatPromptsMentionAndTheRightOnes) {
  const nlohmann::json counts =
      count_verdicts({verdict({1, 2, 3, 4}, {1, 2, 3, 4}), verdict({1, 2, -1, 4}, {1, 2, 3, 5}),
                      verdict({-1, -1, -1, 0}, {1, 2, 3, 0}), verdict({-1, -1, -1, -1}, {1, 2, 3, 4})});
  EXPECT_EQ(counts, nlohmann::json({{"prompts", 3},
                                    {"right", 2},
                                    {"shape", {2, 2}},
                                    {"colour", {2, 2}},
                                    {"background", {1, 1}},
                                    {"motion", {2, 3}}}));
  EXPECT_EQ(count_verdicts({})["prompts"], 0);
}

}  // namespace
}  // namespace sparsereel::app::bench
