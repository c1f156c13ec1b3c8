// Tests how a request is resolved to a plan, in cases that the command-line tests do not cover.
#include "models/request/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "app/options/option_table.h"
#include "attention/policies/profile.h"
#include "models/request/sampling.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;
using ::testing::Eq;
using ::testing::Optional;

ModelSpec spec_with(SamplerKind first, SamplerKind second) {
  ModelSpec spec;
  spec.samplers = {{.name = "a", .class_name = "First", .kind = first},
                   {.name = "b", .class_name = "Second", .kind = second}};
  spec.defaults = {.width = 8, .height = 8, .frames = 1, .steps = 4, .guidance = 4, .sampler = "First"};
  spec.scheduler.flow_shift = 3;
  spec.text_length = 4;
  return spec;
}

TEST(ResolveRequest, UsesTheCheckpointsShiftUnlessGiven) {
  const ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::flow_euler);
  Request request;
  EXPECT_THAT(resolve_request(request, spec).flow_shift, Optional(Eq(3)));
  request.scheduler = "b";
  request.flow_shift = 5;
  const Plan plan = resolve_request(request, spec);
  EXPECT_EQ(scheduler_config(plan, spec).flow_shift, 5);
  EXPECT_EQ(scheduler_config(plan, spec).kind, SamplerKind::flow_euler);
  request.flow_shift = 0;
  EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"is not a number above 0 and at most 1e+09"}));
}

TEST(ResolveRequest, ComputesDenseStepsFromAShareAndOverridesThePolicy) {
  const ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::flow_euler);
  Request request;
  const auto dense_steps = [&] { return resolve_request(request, spec).attention_policy.dense_steps; };
  request.dense_steps = parse_first_steps("50%", "dense_steps");
  EXPECT_EQ(dense_steps(), 2) << "of the model's 4";
  request.num_inference_steps = 9;
  EXPECT_EQ(dense_steps(), 5);
  request.policy.emplace().dense_steps = 3;
  EXPECT_EQ(dense_steps(), 5);
  request.dense_steps.reset();
  EXPECT_EQ(dense_steps(), 3);
}

/// Returns the field and the file that the error about invalid noise levels names; "nothing" if there is no error.
std::pair<std::string, std::string> blamed(const Request& request, const ModelSpec& spec) {
  try {
    resolve_request(request, spec);
  } catch (const Error& error) {
    return {error.field(), error.file()};
  }
  return {"nothing", "nothing"};
}

TEST(ResolveRequest, NamesTheSourceOfABadShift) {
  ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::flow_euler);
  Request request;
  EXPECT_EQ(blamed(request, spec), std::pair(std::string("nothing"), std::string("nothing")));
  spec.scheduler.flow_shift = 1e9;
  EXPECT_EQ(blamed(request, spec), std::pair(std::string(), std::string("scheduler_config.json")));
  for (const double shift : {1e300, 1e9, 1e-300, -1.0}) {
    request.flow_shift = shift;
    EXPECT_EQ(blamed(request, spec).first, "flow_shift") << shift;
  }
  request.scheduler = "b";
  request.flow_shift = 1e-300;
  EXPECT_EQ(blamed(request, spec).first, "flow_shift");
  request.scheduler = "a";
  request.flow_shift = 5;
  for (const std::vector<double>& sigmas : std::vector<std::vector<double>>{{1, 1e-300}, {0.5, 0.5 - 1e-12}}) {
    request.sigmas = sigmas;
    EXPECT_EQ(blamed(request, spec).first, "sigmas");
  }
}

TEST(ResolveRequest, RefusesGuidanceScalesOutOfRange) {
  const ModelSpec spec = spec_with(SamplerKind::ddim, SamplerKind::unipc);
  for (const double scale : {1e30, 1000.5, -1e-9, static_cast<double>(NAN)}) {
    for (std::optional<double> Request::*member : {&Request::guidance_scale, &Request::guidance_scale_2}) {
      Request request;
      request.*member = scale;
      const bool first = member == &Request::guidance_scale;
      EXPECT_EQ(blamed(request, spec).first, first ? "cfg_scale" : "cfg_scale_2") << scale;
      request.*member = 1000;
      EXPECT_EQ(blamed(request, spec).first, "nothing");
    }
  }
}

TEST(ResolveRequest, GivesNoShiftToSamplersWithoutFlow) {
  const ModelSpec spec = spec_with(SamplerKind::ddim, SamplerKind::dpm_solver);
  Request request;
  request.flow_shift = 5;
  EXPECT_EQ(resolve_request(request, spec).flow_shift, std::nullopt);
}

TEST(ResolveRequest, TakesTheStepCountFromNoiseLevels) {
  ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::ddim);
  Request request;
  request.sigmas = {1, 0.5, 0.25};
  Plan plan = resolve_request(request, spec);
  EXPECT_EQ(plan.num_inference_steps, 3);
  EXPECT_EQ(scheduler_config(plan, spec).sigmas, request.sigmas);
  spec.samplers[0].sigmas = [](int64_t steps) { return std::vector<double>(static_cast<size_t>(steps), 0.5); };
  EXPECT_EQ(scheduler_config(plan, spec).sigmas, request.sigmas) << "those of the family stand back";
  plan.sigmas.clear();
  EXPECT_EQ(scheduler_config(plan, spec).sigmas, std::vector<double>(3, 0.5));
  spec.samplers[0].sigmas = nullptr;
  request.num_inference_steps = 4;
  EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"sigmas has 3 values, but steps is 4"}));
  request.scheduler = "b";  // a scheduler that takes no sigmas
  EXPECT_EQ(resolve_request(request, spec).num_inference_steps, 4);
  EXPECT_TRUE(resolve_request(request, spec).sigmas.empty());
  request.cache = {.kind = CacheKind::steps, .steps = 3};
  EXPECT_EQ(why_cache_has_no_effect(request, spec), "");
  request.scheduler = "a";
  EXPECT_THAT(why_cache_has_no_effect(request, spec), ::testing::HasSubstr("with 3 steps"));
}

TEST(ResolveRequest, RequiresDecreasingNoiseLevels) {
  const ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::ddim);
  for (const std::vector<double>& sigmas :
       std::vector<std::vector<double>>{{1.1}, {0}, {-1}, {NAN}, {0.5, 0.5}, {0.2, 0.4}}) {
    Request request;
    request.sigmas = sigmas;
    EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"sigmas"}));
  }
}

ModelSpec spec_of_images() {
  ModelSpec spec = spec_with(SamplerKind::unipc, SamplerKind::ddim);
  spec.defaults.width = 832;
  spec.defaults.height = 480;
  spec.defaults.frames = 5;
  spec.stride = {4, 8, 8};
  spec.patch = {1, 2, 2};
  spec.image.latents = ImageSpec::Latents::beside_noise;
  return spec;
}

/// Returns the message of the error about the images; empty if they are accepted.
std::string refusal(const std::string& image, const std::string& last, const ModelSpec& spec) {
  Request request;
  request.image = image;
  request.last_image = last;
  try {
    resolve_request(request, spec);
  } catch (const Error& error) {
    return error.field() + " " + error.problem();
  }
  return {};
}

TEST(ResolveRequest, UsesTheShiftForLargeVideosAboveItsArea) {
  ModelSpec spec = spec_of_images();
  spec.scheduler.flow_shift = 3;
  spec.defaults.shift_above = AreaShift{.pixels = 832 * 480, .shift = 5};
  const auto shift = [&](int64_t width, int64_t height, std::optional<double> asked = {}) {
    return resolve_request({.width = width, .height = height, .flow_shift = asked}, spec).flow_shift.value();
  };
  EXPECT_EQ(shift(832, 480), 3);
  EXPECT_EQ(shift(480, 832), 3);
  EXPECT_EQ(shift(848, 480), 5);
  EXPECT_EQ(shift(1280, 720, 4), 4);
  EXPECT_EQ(resolve_request({.size = find_frame_area("480p")}, spec).flow_shift, 3);
  EXPECT_EQ(resolve_request({.size = find_frame_area("720p")}, spec).flow_shift, 5);
  spec.defaults.shift_above.reset();
  EXPECT_EQ(shift(1280, 720), 3);
}

TEST(ResolveRequest, AcceptsOnlyImagesThatTheModelTakes) {
  ModelSpec spec = spec_of_images();
  EXPECT_EQ(refusal("a", "", spec), "");
  EXPECT_EQ(refusal("", "", spec), "");
  EXPECT_THAT(refusal("a", "b", spec), ::testing::StartsWith("last_image is given"));
  spec.image.needed = true;
  EXPECT_THAT(refusal("", "", spec), ::testing::StartsWith("image is missing: this model"));
  spec.image.takes_last = true;
  EXPECT_EQ(refusal("a", "b", spec), "");
  EXPECT_EQ(refusal("a", "", spec), "");
  EXPECT_THAT(refusal("", "b", spec), ::testing::StartsWith("image is missing"));
  spec.image.needs_last = true;
  EXPECT_THAT(refusal("a", "", spec), ::testing::StartsWith("last_image is missing"));
  spec.defaults.frames = 1;
  EXPECT_THAT(refusal("a", "b", spec), ::testing::StartsWith("frames 1 leaves no room for a last image"));
  spec.image.needed = spec.image.needs_last = false;
  EXPECT_THAT(refusal("", "b", spec), ::testing::StartsWith("image is missing, but last_image is given"));
  spec.image.last_alone = true;
  spec.defaults.frames = 5;
  EXPECT_EQ(refusal("", "b", spec), "");
  spec.image = {};
  EXPECT_THAT(refusal("a", "", spec), ::testing::StartsWith("image is given, but this model makes videos from text"));
}

TEST(ResolveRequest, TakesTheVideosShapeFromTheImage) {
  ModelSpec spec = spec_of_images();
  Request request = {.image = "a", .image_size = PixelSize{.height = 1000, .width = 1000}};
  const auto size = [&] {
    const Plan plan = resolve_request(request, spec);
    EXPECT_EQ(plan.image_size.has_value(), !spec.image.fixed_size && request.image_size);
    return PixelSize{.height = plan.height, .width = plan.width};
  };
  EXPECT_EQ(size(), (PixelSize{624, 640}));
  request.width = 1280;  // as the model's file in configs/ does
  request.height = 720;
  EXPECT_EQ(size(), (PixelSize{960, 960}));
  request.size = find_frame_area("480p");
  EXPECT_EQ(size(), (PixelSize{624, 640}));
  request.image_size = {.height = 1280, .width = 720};
  EXPECT_EQ(size(), (PixelSize{832, 480}));
  request.image_size.reset();
  EXPECT_EQ(size(), (PixelSize{480, 832})) << "the usual shape";
  request.size.reset();
  EXPECT_EQ(size(), (PixelSize{720, 1280}));
  spec.largest = {768, 1360};
  request.size = find_frame_area("768p");
  EXPECT_LE(size().width, 1360);
  request.size = find_frame_area("1080p");
  EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"size 1080p is too large for this model"}));
  spec.largest = {0, 0};
  request = {.image = "a", .image_size = PixelSize{.height = 1000, .width = 1000}};
  spec.image.fixed_size = true;
  EXPECT_EQ(size(), (PixelSize{480, 832}));
  request.width = 640;
  EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"width 640 is impossible for this model"}));
  request.width.reset();
  request.size = find_frame_area("720p");
  EXPECT_TRUE(throws_error([&] { resolve_request(request, spec); }, {"size 720p is impossible for this model"}));
}

TEST(Profile, IsReadOnceForItsOptionsAndItsHeads) {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "profile.yaml";
  attention::Profile profile;
  profile.model = "a";
  profile.model_sha256 = std::string(64, 'a');
  profile.made_with = {
      .width = 8, .height = 8, .frames = 1, .steps = 4, .token_order = "hilbert", .device = "cpu", .dtype = "fp32"};
  profile.settings = {{"cache", "0"}};
  profile.heads = {{{.policy = {}, .error = 0.1, .sparsity = 0.5}}};
  test::write_text(file, attention::to_yaml(profile));
  app::Settings settings;
  settings.add(Source::command_line, {{"profile", file.string()}});
  add_profile(settings);
  EXPECT_EQ(settings.text("cache"), "0");
  std::filesystem::remove(file);
  Request request;
  const std::optional<TunedProfile> tuned = apply_profile(settings, request);
  ASSERT_TRUE(tuned);
  EXPECT_EQ(tuned->heads, (HeadCount{.layers = 1, .heads = 1}));
  ASSERT_TRUE(request.policy);
  EXPECT_EQ(request.policy->per_head.size(), 1U);
}

}  // namespace
}  // namespace sparsereel::models
