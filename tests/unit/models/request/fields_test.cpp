// Tests the list of request fields: how values are read and written as text, which fields change the keys of cached
// results, and which values a recipe holds.
#include "models/request/fields.h"

#include <gmock/gmock.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;
using ::testing::IsEmpty;

/// Returns a valid value that is not the field's default.
std::string some_value(const Field& field) {
  static const std::map<std::string, std::string> special = {
      {"cache", "steps:20"},      {"lora", "/a/st\xffyle.safetensors@high:0.5"},
      {"sigmas", "1,0.75,1e-05"}, {"dense_steps", "20%"},
      {"exact_steps", "4%"},      {"size", "720p"}};
  if (const auto found = special.find(field.name); found != special.end()) return found->second;
  switch (field.kind) {
    case ValueKind::choice:
      return field.choices.empty() ? "some" : field.choices.back();
    case ValueKind::flag:
      return "true";
    case ValueKind::whole:
      return "32";
    case ValueKind::seed:
      return "18446744073709551615";
    case ValueKind::number:
      return "0.3";
    default:
      return "a text";
  }
}

TEST(Fields, ConvertFromTextAndBack) {
  std::set<std::string> names;
  for (const Field& field : fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name << " stands twice";
    Request request;
    const std::string before = field.text(request), value = some_value(field);
    field.read(request, value);
    EXPECT_EQ(field.text(request), value) << field.name;
    EXPECT_NE(before, value) << field.name;
  }
}

TEST(Fields, ReadOnlyTheirOwnMember) {
  for (const Field& field : fields()) {
    const Request request = read_request({{field.name, some_value(field)}});
    for (const Field& other : fields()) {
      if (other.name == field.name) continue;
      EXPECT_EQ(other.text(request), other.text(Request{})) << field.name;
    }
  }
}

TEST(Fields, AreNamedIfTheirValueIsInvalid) {
  const auto refused = [](const std::string& name, const std::string& value) {
    return throws_error([&] { read_request({{name, value}}); }, {name});
  };
  EXPECT_TRUE(refused("steps", "2.5"));
  EXPECT_TRUE(refused("steps", "99999999999999999999"));
  EXPECT_TRUE(refused("seed", "-1"));
  EXPECT_TRUE(refused("topk", "half"));
  EXPECT_TRUE(refused("sigmas", "1,,0.5"));
  EXPECT_TRUE(refused("dynamic_cfg", "maybe"));
  EXPECT_TRUE(refused("attention", "most"));
  EXPECT_TRUE(refused("cache", "0.1x"));
  EXPECT_TRUE(refused("lora", "a:b"));
  for (const char* no_area : {"720", "1280x720", "p", "31p", "-480p", "48.5p", "480 p", "9999999p", ""})
    EXPECT_TRUE(refused("size", no_area)) << no_area;
  for (const char* no_steps : {"-1", "1.5", "101%", "-1%", "nan%", "%", "a%", "20 %"})
    EXPECT_TRUE(refused("dense_steps", no_steps)) << no_steps;
}

TEST(Fields, ReadFirstStepsAsANumberOrAShare) {
  EXPECT_EQ(parse_first_steps("7", "dense_steps").of(4), 7);
  EXPECT_EQ(parse_first_steps("20%", "dense_steps").of(50), 10);
  EXPECT_EQ(parse_first_steps("20%", "dense_steps").of(25), 5);
  EXPECT_EQ(parse_first_steps("20%", "dense_steps").of(4), 1);
  EXPECT_EQ(parse_first_steps("0%", "dense_steps").of(4), 0);
  EXPECT_EQ(parse_first_steps("100%", "dense_steps").of(3), 3);
  EXPECT_EQ(name(parse_first_steps("33.5%", "dense_steps")), "33.5%");
}

TEST(Fields, AllowSpacesInLists) {
  EXPECT_EQ(read_request({{"sigmas", " 1, 0.75,\t0.5 "}}).sigmas, (std::vector<double>{1, 0.75, 0.5}));
}

TEST(Fields, AreRefusedIfTheyContradictEachOther) {
  EXPECT_NO_THROW(refuse_contradictions({{"topk", "0.3"}, {"dropped", "none"}, {"select", "mass"}}));
  EXPECT_TRUE(throws_error(
      [] {
        refuse_contradictions({{"topk", "0.3"}, {"error", "0.1"}});
      },
      {"topk and error exclude each other"}));
  EXPECT_TRUE(throws_error(
      [] {
        refuse_contradictions({{"dropped", "none"}, {"select", "error"}});
      },
      {"dropped none and select error exclude each other"}));
  for (const char* other : {"topk", "cdf", "error"})
    EXPECT_TRUE(is_excluded("block_error", "0.01", {{other, "0.5"}})) << other;
  EXPECT_TRUE(is_excluded("steps", "4", {{"sigmas", "1,0.5"}}));
  EXPECT_TRUE(is_excluded("select", "error", {{"dropped", "none"}}));
  EXPECT_FALSE(is_excluded("select", "mass", {{"dropped", "none"}}));
}

TEST(Fields, DistinguishPipelinesAndTextsByTheirKeys) {
  const Request usual;
  for (const Field& field : fields()) {
    const Request other = read_request({{field.name, some_value(field)}});
    EXPECT_EQ(pipeline_key(other) != pipeline_key(usual), field.decides == RunPart::pipeline) << field.name;
  }
  Plan plan, other;
  plan.guidance_scale = other.guidance_scale = 6;
  other.negative_prompt = "blurry";
  EXPECT_NE(text_key(plan), text_key(other));
  plan.guidance_scale = other.guidance_scale = 1;  // no guidance, so the negative prompt does not count
  EXPECT_EQ(text_key(plan), text_key(other));
  other.seed = 7;
  other.num_inference_steps = 3;
  EXPECT_EQ(text_key(plan), text_key(other));
  other.image = "picture.png";
  EXPECT_NE(text_key(plan), text_key(other)) << "it is encoded along with the text";
  plan.image = other.image;
  EXPECT_EQ(text_key(plan), text_key(other));
  other.width = 64;
  EXPECT_NE(text_key(plan), text_key(other)) << "for one size";
  other.width = plan.width;
  other.image = "else/picture.png";
  EXPECT_NE(text_key(plan), text_key(other)) << "of another folder";
  other.image = plan.image;
  other.last_image = "last.png";
  EXPECT_NE(text_key(plan), text_key(other));
  plan.image = other.image = "";
  EXPECT_NE(text_key(plan), text_key(other)) << "some models take a last image alone";
  plan.image = "last.png";
  EXPECT_NE(text_key(plan), text_key(other)) << "first and last differ";
}

TEST(Fields, HaveRangesThatHoldForEveryModel) {
  const auto check = [](const std::string& name, const std::string& value) {
    check_ranges(read_request({{name, value}}));
  };
  check_ranges(Request{});
  const std::vector<std::array<std::string, 4>> cases = {
      {"steps", "1", "0", "0 is below 1"},
      {"max_sequence_length", "1", "-1", "-1 is below 1"},
      {"cfg_scale", "1000", "1001", "1001 is not a number from 0 to 1000"},
      {"cfg_scale_2", "0", "-0.5", "-0.5 is not a number from 0 to 1000"},
      {"flow_shift", "1e+09", "0", "0 is not a number above 0 and at most 1e+09"},
      {"sigmas", "1,0.5", "1,0.5,0", "0 is not a number above 0 and at most 1"}};
  for (const auto& each : cases) {
    EXPECT_NO_THROW(check(each[0], each[1])) << each[0];
    EXPECT_TRUE(throws_error([&] { check(each[0], each[2]); }, {each[0] + " " + each[3]}));
  }
  EXPECT_TRUE(throws_error([&] { check("cfg_scale", "nan"); }, {"cfg_scale nan"}));
}

TEST(Fields, AppearInARecipeOnlyIfTheyHaveAnEffect) {
  Plan plan;
  plan.attention_mode = attention::Mode::full;
  plan.guidance_scale = 1;
  plan.num_inference_steps = 3;
  plan.asked_steps = 4;
  nlohmann::json recipe = recipe_of(plan);
  for (const char* no_effect :
       {"topk", "dropped", "dense_steps", "negative_prompt", "cfg_scale_2", "cache", "sigmas", "weights"})
    EXPECT_FALSE(recipe.contains(no_effect)) << no_effect;
  EXPECT_EQ(recipe["steps"], 4);
  EXPECT_FALSE(recipe.contains("resize"));
  plan.image = "some/where/picture.png";
  recipe = recipe_of(plan);
  EXPECT_EQ(recipe["image"], "picture.png");
  EXPECT_EQ(recipe["resize"], "cover");
  plan.image = kMadeUpImage;
  EXPECT_FALSE(recipe_of(plan).contains("image")) << "there is no such file";
  plan.attention_mode = attention::Mode::sparse;
  plan.guidance_scale = 6;
  plan.sigmas = {1, 0.5};
  plan.cache = {.kind = CacheKind::steps, .steps = 2};
  recipe = recipe_of(plan);
  EXPECT_EQ(recipe["topk"], 0.12);
  EXPECT_EQ(recipe["cell"], 16);
  EXPECT_EQ(recipe["sigmas"], "1.0,0.5");
  EXPECT_EQ(recipe["cache"], "steps:2");
  EXPECT_FALSE(recipe.contains("steps"));
  plan.attention_policy.per_head = {{attention::HeadPolicy{}}};  // from a profile, so there is no single topk
  recipe = recipe_of(plan);
  EXPECT_FALSE(recipe.contains("topk"));
  EXPECT_EQ(recipe["dropped"], "mean");
}

}  // namespace
}  // namespace sparsereel::models
