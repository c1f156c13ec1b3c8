// Tests a build without FFmpeg's libraries, which runs the program ffmpeg: if there is no such program, and if the
// program fails. The tests of all writers run with this build, too, and test what a working ffmpeg writes.
#include "app/media/without_libraries/ffmpeg_program.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "app/media/image.h"
#include "app/media/video.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app {
namespace {

using test::throws_error;
using ::testing::HasSubstr;

constexpr const char* kVariable = "SPARSEREEL_FFMPEG";

/// Sets an environment variable while this object lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class FfmpegProgram : public ::testing::Test {
 protected:
  /// Writes an executable shell script that replaces ffmpeg. Returns its path.
  std::string program(const std::string& script) const {
    const std::filesystem::path path = folder_ / "my ffmpeg";
    test::write_text(path, "#!/bin/sh\n" + script);
    ::chmod(path.c_str(), 0755);
    return path.string();
  }
  std::filesystem::path output(const std::string& name) const {
    std::filesystem::create_directories(folder_ / "out");
    return folder_ / "out" / name;
  }

  test::TemporaryFolder folder_;
  std::vector<float> pixels_ = std::vector<float>(40 * 64 * 64 * 3, 0.5F);
  FramesView frames_{.data = pixels_.data(), .frames = 40, .height = 64, .width = 64};
};

/// Returns a script that imitates ffmpeg. It lists the encoder mpeg4, succeeds when the encoder is tried, and runs
/// `while_writing` when a video is written.
std::string pretending(const std::string& while_writing) {
  return "case \"$*\" in *-encoders*) echo ' ------'; echo ' V..... mpeg4 MPEG-4'; exit 0;; *:/dev/null) cat > "
         "/dev/null; "
         "exit 0;; esac\n" +
         while_writing;
}

TEST_F(FfmpegProgram, IsMissedBeforeAnyWork) {
  const Variable path("PATH", folder_.path().string()), none(kVariable, "");
  for (const char* name : {"clip.mp4", "clip.webm", "clip.gif"})
    EXPECT_TRUE(throws_error([&] { check_output(output(name), {}); }, {name, "needs the program ffmpeg"})) << name;
  EXPECT_TRUE(throws_error([&] { read_image(SPARSEREEL_TEST_DATA "/images/grey.png"); }, {"grey.png", "ffmpeg"}));
  EXPECT_TRUE(test::names_in(output("").parent_path()).empty());
  EXPECT_TRUE(media_report().libraries.empty());
}

TEST_F(FfmpegProgram, IsNotNeededForOtherFiles) {
  const Variable path("PATH", folder_.path().string()), none(kVariable, "");
  for (const char* name : {"clip.y4m", "clip.safetensors", "frames"}) {
    check_output(output(name), {});
    EXPECT_GT(write_video(output(name), frames_, {}).bytes, 0U);
  }
  check_contact_sheet(output("sheet.png"));
  write_contact_sheet(output("sheet.png"), frames_, "a caption");
  const std::filesystem::path pictures = SPARSEREEL_TEST_DATA "/images";
  EXPECT_EQ(read_image(pictures / "picture.ppm").pixels, read_image(pictures / "bytes.safetensors").pixels);
}

TEST_F(FfmpegProgram, IsTheOneThatTheVariableNames) {
  {
    const Variable named(kVariable, (folder_ / "none").string());
    EXPECT_TRUE(throws_error([&] { check_output(output("a.gif"), {}); }, {"a.gif", "SPARSEREEL_FFMPEG=", "none"}));
  }
  const std::string own = program("exit 0\n");
  const Variable named(kVariable, own);
  EXPECT_EQ(ffmpeg_program(), own);
}

TEST_F(FfmpegProgram, LeavesNoFileWhenItFailsAndIsQuoted) {
  const std::string loss =
      "head -c 20000 > /dev/null; printf 'the first\\nthe second [x]\\n\\n[mp4 @ 0x5f00] the last\\n' >&2;";
  for (const auto& [end, said] : {std::pair("exit 3", "ffmpeg: the first; the second [x]; [mp4] the last"),
                                  {"kill -9 $$", "killed by signal 9: the first; the second [x]; [mp4] the last"}}) {
    const Variable named(kVariable, program(pretending(loss + end + "\n")));
    test::write_text(output("clip.mp4"), "old");
    EXPECT_TRUE(throws_error([&] { write_video(output("clip.mp4"), frames_, {.recipe = "{}"}); }, {"clip.mp4", said}));
    EXPECT_TRUE(throws_error([&] { write_video(output("clip.gif"), frames_, {}); }, {"clip.gif", said}));
    EXPECT_EQ(test::names_in(output("").parent_path()), std::vector<std::string>{"clip.mp4"});
    EXPECT_EQ(test::read_text(output("clip.mp4")), "old");
  }
}

TEST_F(FfmpegProgram, FailsIfItEndsWellBeforeTheLastFrame) {
  const Variable named(kVariable, program(pretending("exit 0\n")));
  EXPECT_TRUE(
      throws_error([&] { write_video(output("clip.mp4"), frames_, {}); }, {"clip.mp4", "before the last frame"}));
}

TEST_F(FfmpegProgram, SaysThatTheDiskIsFull) {
  const Variable named(kVariable, program(pretending("echo 'av_write: No space left on device' >&2; exit 1\n")));
  try {
    write_video(output("clip.mp4"), frames_, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), HasSubstr("free some space"));
  }
}

TEST_F(FfmpegProgram, StartsWithUsualSignalsAndIsWaitedFor) {
  // This process blocks or ignores all signals. In the script, signals must have their default action, because the
  // script ends itself by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_IGN);  // would make the system discard exit codes of children
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const Variable named(kVariable, program("kill -TERM $$; while :; do :; done\n"));
  EXPECT_TRUE(throws_error([&] { output_of_ffmpeg("a file", {}); }, {"a file", "killed by signal 15"}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
}

TEST_F(FfmpegProgram, MaySayMoreThanAPipeHolds) {
  const std::string talk =
      "i=0; while [ $i -lt 5000 ]; do echo \"line $i of many words and more words\" >&2; i=$((i+1)); done\n";
  const Variable named(kVariable, program(talk + "exit 1\n"));
  EXPECT_TRUE(throws_error([&] { output_of_ffmpeg("a file", {}); }, {"line 4998 of", "line 4999 of"}));
}

}  // namespace
}  // namespace sparsereel::app
