// Tests for every model that a video has exactly the requested frames and size. If the model cannot make it, the error
// must offer numbers that the model can make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "models/engine/frames.h"
#include "models/request/frame_count.h"
#include "models/request/resolve.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/configs/config_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;
using ::testing::SizeIs;

std::map<std::string, ModelSpec> every_model() {
  std::map<std::string, ModelSpec> all;
  for (const auto& entry : std::filesystem::directory_iterator(SPARSEREEL_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const Architecture architecture = read_architecture(entry.path());
    all[entry.path().filename().string()] = describe(Checkpoint::with_random_weights(
        architecture.config.file, architecture.transformer_class, architecture.components));
  }
  return all;
}

Request with_images(const ModelSpec& spec) {
  Request request;
  if (spec.image.needed) request.image = "first.png";
  if (spec.image.needs_last) request.last_image = "last.png";
  return request;
}

std::vector<int64_t> numbers_in(const std::string& text) {
  static const std::regex number("[0-9]+");
  std::vector<int64_t> numbers;
  for (std::sregex_iterator each(text.begin(), text.end(), number), end; each != end; ++each)
    numbers.push_back(std::stoll(each->str()));
  return numbers;
}

/// Returns the numbers that the error about `field` of the request offers; nullopt if the request is valid.
std::optional<std::vector<int64_t>> offered(const Request& request, const ModelSpec& spec, const std::string& field) {
  try {
    resolve_request(request, spec);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.field(), field);
    return numbers_in(error.remedy());
  }
}

/// Returns true if the model's video has exactly `frames` frames.
bool keeps_frames(Request request, const ModelSpec& spec, int64_t frames) {
  request.num_frames = frames;
  const Plan plan = resolve_request(request, spec);
  return plan.num_frames == frames && plan.decoded_frames == frames && frame_count_warning(plan, spec).empty();
}

TEST(RequestSizes, AcceptAFrameCountOrOfferTheNearestTwo) {
  for (const auto& [name, spec] : every_model()) {
    Request request = with_images(spec);
    for (int64_t frames = 1; frames <= 130; ++frames) {
      SCOPED_TRACE(name + ": " + std::to_string(frames));
      request.num_frames = frames;
      if (auto numbers = offered(request, spec, "frames")) {
        const bool has_one = spec.image.fixed_size || (spec.image.needs_last && frames == 1);
        EXPECT_THAT(*numbers, SizeIs(has_one ? 1 : 2));
        for (const int64_t number : *numbers) EXPECT_TRUE(keeps_frames(request, spec, number));
        continue;
      }
      const Plan plan = resolve_request(request, spec);
      if (plan.decoded_frames == frames) continue;
      // Some models make more frames than these requests ask for, as their reference does. Recipes may contain such
      // numbers, so they cause only a warning.
      const std::vector<int64_t> named = numbers_in(frame_count_warning(plan, spec));
      ASSERT_THAT(named, SizeIs(4));
      EXPECT_EQ(named[0], plan.decoded_frames);
      EXPECT_EQ(named[1], frames);
      EXPECT_LT(named[2], frames);
      EXPECT_GT(named[3], frames);
      for (const size_t i : {2, 3}) EXPECT_TRUE(keeps_frames(request, spec, named[i]));
    }
  }
}

TEST(RequestSizes, AcceptASideOrOfferPossibleOnes) {
  for (const auto& [name, spec] : every_model()) {
    for (const bool is_width : {true, false}) {
      Request request = with_images(spec);
      std::optional<int64_t>& side = is_width ? request.width : request.height;
      const int64_t largest = spec.largest[is_width ? 1 : 0];
      std::set<int64_t> sides = {-1, 0, std::numeric_limits<int64_t>::max()};
      for (int64_t i = 1; i < 200; ++i) sides.insert({i, std::max<int64_t>(largest, 200) - 100 + i});
      for (const int64_t each : sides) {
        SCOPED_TRACE(name + ": " + std::to_string(each));
        side = each;
        const auto numbers = offered(request, spec, is_width ? "width" : "height");
        if (!numbers) continue;
        EXPECT_FALSE(numbers->empty());
        for (const int64_t number : *numbers) {
          side = number;
          const Plan plan = resolve_request(request, spec);
          EXPECT_EQ(is_width ? plan.width : plan.height, number);
        }
      }
    }
  }
}

TEST(RequestSizes, ConvertSecondsToTheNearestFrameCount) {
  for (const auto& each : every_model()) {
    const auto& spec = each.second;
    Request request = with_images(spec);
    if (spec.image.fixed_size) {
      request.seconds = 4;
      EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"seconds 4 is impossible"}));
      continue;
    }
    for (const double fps : {0.0, 4.0, 23.976}) {
      request.fps = fps > 0 ? std::optional(fps) : std::nullopt;
      const double rate = fps > 0 && spec.takes_frame_rate ? fps : spec.defaults.fps;
      for (double seconds = 0.5; seconds < 8; seconds += 0.3) {
        SCOPED_TRACE(each.first + ": " + std::to_string(seconds) + " at " + std::to_string(rate));
        request.seconds = seconds;
        const Plan plan = resolve_request(request, spec);
        EXPECT_EQ(plan.decoded_frames, plan.num_frames);
        const auto away = [&](int64_t frames) { return std::abs(static_cast<double>(frames) - seconds * rate); };
        for (int64_t frames = spec.image.needs_last ? 2 : 1; frames < 400; ++frames)
          EXPECT_TRUE(!makes_exactly(spec, frames) || away(plan.num_frames) <= away(frames)) << frames;
      }
    }
  }
}

TEST(RequestSizes, AllowWholeClipsOfFrames) {
  ModelSpec spec;
  spec.stride = {4, 16, 16};
  spec.clips = {.frames = 17, .latents = 5, .more_frames = 5, .more_latents = 2};
  spec.sound = {.latent_channels = 32, .latents_a_second = 40};
  spec.defaults.fps = 24;
  EXPECT_EQ(frames_rule(spec), "it must be 5 more than a multiple of 17");
  for (const auto& [frames, latents, sound] : {std::array<int64_t, 3>{22, 7, 37}, {124, 37, 207}, {345, 102, 575}}) {
    const LatentSize size = latent_size(spec, frames, 32, 64);
    EXPECT_EQ(size.frames, latents);
    EXPECT_EQ(size.sound, sound);
    EXPECT_EQ(decoded_frames(spec, latents), frames);
    EXPECT_TRUE(makes_exactly(spec, frames));
    EXPECT_EQ(token_count(spec, size, 7), static_cast<double>(latents * 2 * 4 + 2 * sound + 7));
  }
  for (const int64_t frames : {1, 5, 21, 23, 121}) EXPECT_FALSE(takes_frames(spec, frames)) << frames;
  EXPECT_EQ(nearest_frames(spec, 121).below, 107);
  EXPECT_EQ(nearest_frames(spec, 121).above, 124);
  EXPECT_EQ(nearest_frames(spec, 1).below, 22);
}

TEST(RequestSizes, AllowWholePairsOfLatentFrames) {
  ModelSpec spec;
  spec.stride = {4, 8, 8};
  EXPECT_EQ(nearest_frames(spec, 30).below, 29);
  EXPECT_EQ(nearest_frames(spec, 30).above, 33);
  EXPECT_EQ(frames_rule(spec), "it must be 1 more than a multiple of 4");
  spec.decodes_pairs = true;
  EXPECT_EQ(nearest_frames(spec, 30).below, 25);
  EXPECT_EQ(nearest_frames(spec, 30).above, 32);
  EXPECT_EQ(frames_rule(spec), "it must be 1 more than a multiple of 8, or a multiple of 8");
  EXPECT_TRUE(makes_exactly(spec, 32));
  EXPECT_FALSE(makes_exactly(spec, 29));
  EXPECT_TRUE(takes_frames(spec, 29));
  for (const int64_t none : {INT64_MIN, int64_t{-5}, int64_t{0}}) {
    EXPECT_FALSE(takes_frames(spec, none));
    EXPECT_EQ(nearest_frames(spec, none).below, 1);
    EXPECT_EQ(nearest_frames(spec, none).above, 8);
  }
  EXPECT_EQ(nearest_frames(spec, 1, 2).below, 8);
  EXPECT_EQ(nearest_frames(spec, 1, 2).above, 9);
  EXPECT_GT(nearest_frames(spec, INT64_MAX).above, nearest_frames(spec, INT64_MAX).below);
}

}  // namespace
}  // namespace sparsereel::models
