// Tests .wav files: their bytes, their names beside videos whose format holds no sound, and which files they may
// replace.
#include "app/media/sound.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <array>
#include <cmath>
#include <csignal>
#include <limits>

#include "app/media/video.h"
#include "hilbert/error.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SoundFormat kStereo = {.channels = 2, .sampling_rate = 32000};
constexpr std::array kSilentFormats = {"clip.gif", "clip.y4m", "clip.safetensors", "frames", "frames/"};

/// Returns the little-endian number of `count` bytes at `place`.
int64_t number_at(const std::string& bytes, size_t place, int count) {
  int64_t number = 0;
  for (int i = 0; i < count; ++i) number |= static_cast<int64_t>(static_cast<uint8_t>(bytes.at(place + i))) << (8 * i);
  return number;
}

/// Returns the samples of a .wav file of 24-bit PCM, in the order of the file.
std::vector<int64_t> samples_in(const std::string& wav) {
  const size_t begin = wav.find("data");
  std::vector<int64_t> samples;
  for (size_t i = begin + 8; i + 3 <= begin + 8 + static_cast<size_t>(number_at(wav, begin + 4, 4)); i += 3) {
    const int64_t value = number_at(wav, i, 3);
    samples.push_back(value < (1 << 23) ? value : value - (1 << 24));
  }
  return samples;
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

class Sound : public ::testing::Test {
 protected:
  VideoOptions options() const { return {.recipe = R"({"version":"1","fps":8})", .sound = view}; }

  TemporaryFolder folder;
  Clip clip = make_clip(4, 32, 32);
  std::vector<float> samples = std::vector<float>(2 * 800, 0.25F);
  SoundView view = {.format = kStereo, .samples = samples.data(), .count = 800};
};

TEST_F(Sound, BecomesA24BitWavWithAlternatingChannels) {
  const std::vector<float> two = {0, 0.5F, -0.5F, 1, -1, 0.25F};
  const std::string wav = text_of(wav_of({.format = kStereo, .samples = two.data(), .count = 3}, "clip.wav"));
  EXPECT_EQ(wav.substr(0, 4), "RIFF");
  EXPECT_EQ(number_at(wav, 4, 4), std::ssize(wav) - 8);
  EXPECT_EQ(wav.substr(8, 8), "WAVEfmt ");
  EXPECT_EQ(number_at(wav, 20, 2), 1) << "PCM";
  EXPECT_EQ(number_at(wav, 22, 2), 2);
  EXPECT_EQ(number_at(wav, 24, 4), 32000);
  EXPECT_EQ(number_at(wav, 28, 4), 32000 * 6);
  EXPECT_EQ(number_at(wav, 32, 2), 6);
  EXPECT_EQ(number_at(wav, 34, 2), 24);
  constexpr int64_t kMost = (1 << 23) - 1;
  EXPECT_THAT(samples_in(wav), ElementsAre(0, kMost, 4194304, -kMost, -4194304, 2097152));
}

TEST_F(Sound, PadsAnOddNumberOfBytes) {
  const float one = 0.5F;
  const std::string wav =
      text_of(wav_of({.format = {.channels = 1, .sampling_rate = 8000}, .samples = &one, .count = 1}, "clip.wav"));
  EXPECT_EQ(wav.size() % 2, 0U);
  EXPECT_EQ(number_at(wav, 4, 4), std::ssize(wav) - 8);
  EXPECT_THAT(samples_in(wav), ElementsAre(4194304));
}

TEST_F(Sound, IsClampedAndSilentWhereItIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> wild = {1.5F, -7, std::nanf(""), kInfinity, -kInfinity, 0.5F};
  const SoundView sound = {.format = kStereo, .samples = wild.data(), .count = 3};
  EXPECT_EQ(sound.silenced(), 3);
  EXPECT_EQ(written_sound(sound, "aac").silenced, 3);
  EXPECT_FLOAT_EQ(sound.written(0, 0), 1);
  EXPECT_FLOAT_EQ(sound.written(0, 1), -1);
  EXPECT_FLOAT_EQ(sound.written(0, 2), 0);
  EXPECT_FLOAT_EQ(sound.written(1, 0), 0);
  EXPECT_FLOAT_EQ(sound.written(1, 1), 0);
  EXPECT_FLOAT_EQ(sound.written(1, 2), 0.5F);
}

TEST_F(Sound, LiesBesideVideosThatCannotHoldIt) {
  EXPECT_EQ(sound_beside("a/clip.gif"), "a/clip.gif.wav");
  EXPECT_EQ(sound_beside("clip.y4m"), "clip.y4m.wav");
  EXPECT_EQ(sound_beside("clip.safetensors"), "clip.safetensors.wav");
  EXPECT_EQ(sound_beside(folder / "frames"), folder / "frames.wav");
  EXPECT_EQ(sound_beside((folder / "frames").string() + "/"), folder / "frames.wav");
  for (const char* name : {"clip.mp4", "clip.mov", "clip.mkv", "clip.webm"}) EXPECT_EQ(sound_beside(name), "") << name;
}

TEST_F(Sound, AppearsTogetherWithTheVideo) {
  for (const char* name : kSilentFormats) {
    const std::filesystem::path path = folder / "out" / name, sound = sound_beside(path);
    std::filesystem::create_directory(folder / "out");
    const auto writer = open_video(path, clip.view.shape(), options());
    EXPECT_FALSE(std::filesystem::exists(sound)) << name;
    for (int64_t i = 0; i < clip.view.frames; ++i) {
      const std::vector<uint8_t> bytes = rgb8(clip.view.values(i));
      const std::span<const float> values = clip.view.values(i);
      if (takes_floats(path))
        writer->add({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
      else
        writer->add(bytes);
    }
    const WrittenVideo written = writer->finish();
    EXPECT_EQ(read_bytes(sound), text_of(wav_of(view, sound))) << name;
    EXPECT_EQ(written.sound.file, sound) << name;
    EXPECT_EQ(written.sound.encoder, "pcm_s24le") << name;
    EXPECT_DOUBLE_EQ(written.sound.seconds(), 0.025) << name;
    std::filesystem::remove_all(folder / "out");
  }
}

TEST_F(Sound, DisappearsIfTheVideoCannotBePlaced) {
  for (const bool is_older : {false, true}) {
    const std::filesystem::path path = folder / "frames", sound = sound_beside(path), recipe = recipe_beside(path);
    if (is_older) {
      samples.assign(samples.size(), 0.25F);
      write_video(path, clip.view, options());
      std::filesystem::remove_all(path);
    }
    const auto content = [](const auto& file) { return std::filesystem::exists(file) ? read_bytes(file) : ""; };
    const std::string old_sound = content(sound), old_recipe = content(recipe);
    EXPECT_EQ(old_recipe.empty(), !is_older);
    samples.assign(samples.size(), -0.5F);
    VideoOptions newer = options();
    newer.recipe = R"({"version":"2","fps":8})";
    const auto writer = open_video(path, clip.view.shape(), newer);
    for (int64_t i = 0; i < clip.view.frames; ++i) writer->add(rgb8(clip.view.values(i)));
    writer->complete();
    std::filesystem::create_directory(path);
    test::write_text(path / "theirs", "theirs");  // a folder with a file is not replaced
    EXPECT_ANY_THROW(writer->place());
    EXPECT_EQ(content(sound), old_sound);
    EXPECT_EQ(content(recipe), old_recipe);
    std::filesystem::remove_all(path);
  }
}

TEST_F(Sound, LeavesNothingIfFramesAreMissing) {
  for (const char* name : kSilentFormats) open_video(folder / name, clip.view.shape(), options());
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST_F(Sound, ReplacesAnOlderSoundOfThisProgramOnly) {
  const auto path = folder / "clip.y4m", sound = sound_beside(path);
  check_encoding(path, 32, 32, {}, kStereo);
  write_video(path, clip.view, options());
  check_encoding(path, 32, 32, {}, kStereo);
  samples.assign(samples.size(), -0.5F);
  write_video(path, clip.view, options());
  EXPECT_EQ(samples_in(read_bytes(sound)).front(), -4194304);
  for (const std::string theirs : {"my words", "RIFF\x24\0\0\0WAVEfmt "}) {
    test::write_text(sound, theirs);
    EXPECT_TRUE(throws_error([&] { check_encoding(path, 32, 32, {}, kStereo); }, {sound.string(), "something else"}));
    EXPECT_EQ(read_bytes(sound), theirs);
    EXPECT_NO_THROW(check_encoding(path, 32, 32, {}));
  }
}

TEST_F(Sound, LeavesFilesThatOthersMadeMeanwhile) {
  const auto path = folder / "clip.y4m";
  for (const auto& theirs : {sound_beside(path), recipe_beside(path)}) {
    const auto video = open_video(path, clip.view.shape(), options());
    for (int64_t i = 0; i < clip.view.frames; ++i) video->add(rgb8(clip.view.values(i)));
    test::write_text(theirs, "my words");
    EXPECT_TRUE(throws_error([&] { video->finish(); }, {theirs.string(), "holds something else"}));
    EXPECT_EQ(read_bytes(theirs), "my words");
    EXPECT_FALSE(std::filesystem::exists(path));
    std::filesystem::remove(theirs);
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST_F(Sound, OfAnOlderVideoIsRemovedByAVideoWithoutOne) {
  const auto path = folder / "clip.gif";
  write_video(path, clip.view, {.sound = view});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("clip.gif", "clip.gif.wav"));
  write_video(path, clip.view, {});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("clip.gif"));
  test::write_text(sound_beside(path), "mine");
  write_video(path, clip.view, {});
  EXPECT_EQ(read_bytes(sound_beside(path)), "mine");
}

TEST_F(Sound, ThatDoesNotFitOnTheDiskStopsTheVideoAtItsBegin) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{1000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string cause;
  try {
    open_video(folder / "clip.gif", clip.view.shape(), options());
  } catch (const Error& error) {
    cause = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(cause, HasSubstr("clip.gif.wav"));
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST_F(Sound, TooLongForAWavIsRefused) {
  const SoundView sound = {.format = kStereo, .samples = samples.data(), .count = int64_t{1} << 30};
  EXPECT_TRUE(throws_error([&] { wav_of(sound, "clip.gif.wav"); }, {"clip.gif.wav", "4 GiB"}));
}

}  // namespace
}  // namespace sparsereel::app
