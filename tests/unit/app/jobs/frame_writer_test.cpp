// Tests writing a video while its frames arrive: the file is complete or absent, and an error stops the decoder.
#include "app/jobs/frame_writer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <span>

#include "app/jobs/write.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr models::VideoShape kShape{.frames = 5, .height = 32, .width = 48};
constexpr std::array kNames = {"clip.y4m", "clip.safetensors", "frames", "clip.mp4", "clip.webm", "clip.gif"};

/// Returns the names in kNames whose formats this build can write. Without FFmpeg, these are the first three.
std::span<const char* const> writable_names() {
  return std::span(kNames).first(media_report().libraries.empty() ? 3 : kNames.size());
}

class FrameWriterTest : public ::testing::Test {
 protected:
  RunOptions to(const std::string& name) const {
    RunOptions run;
    run.output = folder_ / name;
    return run;
  }
  static FrameWriter::Text text() {
    return {.recipe = [](bool tiled) { return tiled ? R"({"tiled":true})" : R"({"tiled":false})"; }, .caption = "a"};
  }
  /// Returns the frames [first, end) in the dtype that the writer takes.
  at::Tensor frames(const FrameWriter& writer, int64_t first, int64_t end) const {
    const at::Tensor piece = values_.narrow(0, first, end - first);
    return writer.dtype() == at::kFloat ? piece : piece.mul(255).add_(0.5).to(at::kByte);
  }
  /// Returns the bytes of a file, or of all files in a folder, one after the other.
  std::string content(const std::string& name) const {
    const std::filesystem::path path = folder_ / name;
    if (!std::filesystem::is_directory(path)) return test::read_text(path);
    std::string all;
    for (const std::string& file : test::names_in(path)) all += file + test::read_text(path / file);
    return all;
  }
  std::string written_at_once(const std::string& name) const {
    write_video(folder_ / ("whole-" + name), frames_view(values_), {});
    return content("whole-" + name);
  }

  c10::InferenceMode guard_;
  test::TemporaryFolder folder_;
  at::Tensor values_ = at::rand({kShape.frames, kShape.height, kShape.width, 3});
};

TEST_F(FrameWriterTest, WritesTheSameFileFromPiecesAsFromAllFrames) {
  for (const std::string name : writable_names()) {
    RunOptions run = to(name);
    run.metadata = false;
    FrameWriter writer(run, text());
    writer.begin(kShape, false);
    writer.take(frames(writer, 0, 1));
    writer.take(frames(writer, 1, 4));
    writer.take(frames(writer, 4, 5));
    const WrittenVideo written = writer.finish();
    EXPECT_GT(written.bytes, 0U) << name;
    EXPECT_EQ(content(name), written_at_once(name)) << name;
  }
}

TEST_F(FrameWriterTest, LeavesNoFileIfFramesAreMissing) {
  {
    FrameWriter writer(to("clip.y4m"), text());
    writer.begin(kShape, false);
    writer.take(frames(writer, 0, 2));
  }
  EXPECT_THAT(test::names_in(folder_.path()), IsEmpty());
}

TEST_F(FrameWriterTest, DiscardsEarlierFramesWhenItBeginsAgain) {
  FrameWriter writer(to("clip.y4m"), text());
  writer.begin(kShape, false);
  writer.take(at::zeros({3, kShape.height, kShape.width, 3}, at::kByte));
  writer.begin(kShape, true);
  writer.take(frames(writer, 0, 5));
  writer.finish();
  EXPECT_EQ(content("clip.y4m"), written_at_once("clip.y4m"));
  EXPECT_EQ(content("clip.y4m.json"), R"({"tiled":true})");
}

/// Returns one second of a stereo tone of 440 Hz, with 32000 samples a second.
models::Sound tone() {
  const at::Tensor left = at::arange(32000).mul(440 * 2 * 3.14159265 / 32000).sin().mul(0.5);
  return {.samples = at::stack({left, left.mul(0.5)}), .sampling_rate = 32000};
}

TEST_F(FrameWriterTest, WritesTheSoundIntoTheVideoOrBesideIt) {
  for (const std::string name : writable_names()) {
    FrameWriter writer(to(name), text());
    writer.take_sound(tone());
    writer.begin(kShape, false);
    writer.take(frames(writer, 0, 5));
    const WrittenSound sound = writer.finish().sound;
    EXPECT_EQ(sound.count, 32000) << name;
    EXPECT_EQ(sound.format.channels, 2) << name;
    EXPECT_EQ(sound.format.sampling_rate, 32000) << name;
    EXPECT_EQ(sound.silenced, 0) << name;
    EXPECT_EQ(sound.file, sound_beside(folder_ / name)) << name;
    const auto wav = folder_ / (name + ".wav");
    EXPECT_EQ(std::filesystem::exists(wav), !sound.file.empty()) << name;
    if (sound.file.empty()) continue;
    EXPECT_GT(std::filesystem::file_size(wav), 32000U * 2 * 3) << name;
  }
}

TEST_F(FrameWriterTest, KeepsTheSoundWhenItBeginsAgain) {
  FrameWriter writer(to("clip.y4m"), text());
  writer.take_sound(tone());
  writer.begin(kShape, false);
  writer.take(frames(writer, 0, 3));
  writer.begin(kShape, true);
  writer.take(frames(writer, 0, 5));
  EXPECT_EQ(writer.finish().sound.count, 32000);
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("clip.y4m", "clip.y4m.json", "clip.y4m.wav"));
}

TEST_F(FrameWriterTest, TakesASoundOfAnyStrides) {
  models::Sound sound = tone();
  FrameWriter plain(to("a.y4m"), text()), strided(to("b.y4m"), text());
  plain.take_sound(sound);
  sound.samples = sound.samples.t().contiguous().t();
  strided.take_sound(sound);
  for (FrameWriter* writer : {&plain, &strided}) {
    writer->begin(kShape, false);
    writer->take(frames(*writer, 0, 5));
    writer->finish();
  }
  EXPECT_EQ(content("a.y4m.wav"), content("b.y4m.wav"));
}

TEST_F(FrameWriterTest, WritesTheSameFileWithoutAudioAsForAModelWithoutSound) {
  for (const std::string name : writable_names()) {
    RunOptions run = to(name);
    run.metadata = false;
    run.no_audio = true;
    FrameWriter writer(run, text());
    writer.take_sound(tone());
    writer.begin(kShape, false);
    writer.take(frames(writer, 0, 5));
    EXPECT_FALSE(writer.finish().sound.any()) << name;
    EXPECT_EQ(content(name), written_at_once(name)) << name;
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name + ".wav"))) << name;
  }
}

TEST_F(FrameWriterTest, LeavesNoSoundIfFramesAreMissing) {
  {
    FrameWriter writer(to("clip.y4m"), text());
    writer.take_sound(tone());
    writer.begin(kShape, false);
    writer.take(frames(writer, 0, 2));
  }
  EXPECT_THAT(test::names_in(folder_.path()), IsEmpty());
}

/// Another thread writes the frames, so the decoder gets its error with one of the next pieces or at the end.
TEST_F(FrameWriterTest, TellsTheDecoderThatTheDiskIsFull) {
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{64, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::string cause;
  try {
    FrameWriter writer(to("clip.y4m"), text());
    writer.begin(kShape, false);
    for (int64_t i = 0; i < kShape.frames; ++i) writer.take(frames(writer, i, i + 1));
    writer.finish();
  } catch (const Error& error) {
    cause = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(cause, HasSubstr("clip.y4m"));
  EXPECT_THAT(test::names_in(folder_.path()), IsEmpty());
}

TEST_F(FrameWriterTest, TellsTheDecoderThatTheFileCannotBeCreated) {
  std::filesystem::create_directory(folder_ / "clip.safetensors");
  RunOptions run = to("gone/clip.safetensors");
  FrameWriter writer(run, text());
  writer.begin(kShape, false);
  EXPECT_THROW(
      {
        for (int64_t i = 0; i < kShape.frames; ++i) writer.take(frames(writer, i, i + 1));
        writer.finish();
      },
      Error);
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("clip.safetensors"));
}

}  // namespace
}  // namespace sparsereel::app
