// Tests the ModelSpec of CogVideoX's image-to-video models, and the requests that they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/request/resolve.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::models {
namespace {

using ImageLatents = ImageSpec::Latents;
using ::testing::Contains;
using ::testing::Pair;

ModelSpec spec_of(const std::string& folder) {
  return describe(Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/" + folder));
}

/// Returns the field that the error about the request names; "none" if there is no error.
std::string refused(const ModelSpec& spec, const Request& request) {
  try {
    resolve_request(request, spec);
  } catch (const Error& error) {
    return error.field();
  }
  return "none";
}

TEST(CogVideoXFamily, TakesNoImageForTextToVideo) {
  const ModelSpec spec = spec_of("pipeline");
  EXPECT_FALSE(spec.image.any());
  EXPECT_THAT(spec.fingerprint, Contains(Pair("in_channels", "4")));
  EXPECT_EQ(refused(spec, {.image = "a.png"}), "image");
}

TEST(CogVideoXFamily, ConcatenatesSampledImageLatentsToTheNoise) {
  for (const char* folder : {"cogvideox_i2v/pipeline", "cogvideox_i2v/pipeline_1.5"}) {
    const ModelSpec spec = spec_of(folder);
    EXPECT_EQ(spec.image.latents, ImageLatents::beside_noise) << folder;
    EXPECT_TRUE(spec.image.needed && spec.image.drawn) << folder;
    EXPECT_FALSE(spec.image.takes_last || spec.image.encodes_video || spec.image.has_context) << folder;
    // Half of the transformer's 8 input channels; an image takes the others.
    EXPECT_EQ(spec.latent_channels, 4) << folder;
    EXPECT_THAT(spec.fingerprint, Contains(Pair("in_channels", "8"))) << folder;
    EXPECT_EQ(refused(spec, {}), "image") << folder;
    EXPECT_EQ(refused(spec, {.image = "a.png", .last_image = "b.png"}), "last_image") << folder;
    EXPECT_EQ(refused(spec, {.width = 64, .height = 64, .image = "a.png"}), "none") << folder;
  }
}

TEST(CogVideoXFamily, IdentifiesVersion15ByItsOfsEmbedding) {
  EXPECT_THAT(spec_of("cogvideox_i2v/pipeline").fingerprint, Contains(Pair("ofs_embed_dim", "null")));
  EXPECT_THAT(spec_of("cogvideox_i2v/pipeline_1.5").fingerprint, Contains(Pair("ofs_embed_dim", "16")));
}

TEST(CogVideoXFamily, LimitsSizesOfVersion15ToItsPositions) {
  const ModelSpec spec = spec_of("cogvideox_i2v/pipeline_1.5");
  EXPECT_EQ(refused(spec, {.width = 160, .height = 160, .image = "a.png"}), "none");
  EXPECT_EQ(refused(spec, {.width = 176, .image = "a.png"}), "width");
  EXPECT_EQ(refused(spec, {.height = 176, .image = "a.png"}), "height");
}

TEST(CogVideoXFamily, RequiresTheTrainedSizeForLearnedPositions) {
  const ModelSpec fixed = spec_of("cogvideox_i2v/pipeline"), free = spec_of("cogvideox_i2v/pipeline_1.5");
  const std::pair<Request, std::string> cases[] = {
      {{.width = 96, .image = "a.png"}, "width"},
      {{.height = 48, .image = "a.png"}, "height"},
      {{.num_frames = 5, .image = "a.png"}, "frames"},
      {{.max_sequence_length = 8, .image = "a.png"}, "max_sequence_length"},
  };
  for (const auto& [request, field] : cases) {
    EXPECT_EQ(refused(fixed, request), field);
    EXPECT_EQ(refused(free, request), "none") << field;
  }
}

}  // namespace
}  // namespace sparsereel::models
