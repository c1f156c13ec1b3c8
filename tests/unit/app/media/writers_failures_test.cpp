// Tests which videos the writers refuse, and that a full disk leaves no new file and does not change an old file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "app/media/writers.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"
#include "tests/support/wait_until.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// While this object lives, no file of this process can grow beyond `bytes`: write() fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

class WriterFailures : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  Clip clip = make_clip(4, 128, 128);
};

class FullDisk : public WriterFailures, public ::testing::WithParamInterface<const char*> {};

TEST_P(FullDisk, NamesTheFileAndLeavesNoFile) {
  const auto path = folder / GetParam();
  std::string cause, remedy;
  {
    const FileSizeLimit limit(64);
    try {
      write_video(path, clip.view, {.recipe = "{}"});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      cause = error.what();
      remedy = error.remedy();
    }
  }
  EXPECT_THAT(cause, HasSubstr(path.string()));
  EXPECT_THAT(remedy, HasSubstr("file size limit"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST_P(FullDisk, LeavesTheOldOutputAsItWas) {
  const auto path = folder / GetParam();
  if (path.has_extension()) {
    std::ofstream(path) << "old";
    {
      const FileSizeLimit limit(64);
      EXPECT_THROW(write_video(path, clip.view, {}), Error);
    }
    EXPECT_EQ(read_bytes(path), "old");
  } else {
    std::filesystem::create_directory(path);
    {
      const FileSizeLimit limit(64);
      EXPECT_THROW(write_video(path, clip.view, {}), Error);
    }
    EXPECT_TRUE(std::filesystem::is_empty(path));
  }
  EXPECT_EQ(names_in(folder.path()).size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(EveryWriter, FullDisk,
                         ::testing::Values("clip.mp4", "clip.gif", "clip.y4m", "clip.safetensors", "frames"),
                         [](const auto& parameter) {
                           const std::string name = parameter.param;
                           return name.substr(name.find('.') == std::string::npos ? 0 : name.find('.') + 1);
                         });

TEST_F(WriterFailures, LeavesNoContactSheetOnAFullDisk) {
  {
    const FileSizeLimit limit(64);
    EXPECT_THROW(write_contact_sheet(folder / "sheet.png", clip.view, "caption"), Error);
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST_F(WriterFailures, NamesUnknownExtensionsAndListsTheKnownOnes) {
  try {
    check_output(folder / "clip.mp5", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_THAT(error.what(), HasSubstr(".mp5"));
    EXPECT_THAT(error.remedy(), HasSubstr(".safetensors"));
    EXPECT_THAT(error.remedy(), HasSubstr("did you mean .mp4?"));
  }
}

TEST_F(WriterFailures, FindsMissingFoldersBeforeTheRun) {
  for (const char* name : {"none/clip.mp4", "none/clip.gif", "none/clip.y4m", "none/clip.safetensors", "none/frames"})
    EXPECT_THROW(check_output(folder / name, {}), Error) << name;
  EXPECT_THROW(check_contact_sheet(folder / "none/sheet.png"), Error);
}

TEST_F(WriterFailures, LeavesNoFileAfterAnOutputCheck) {
  for (const char* name : {"clip.mp4", "clip.gif", "clip.y4m", "clip.safetensors", "frames"})
    check_output(folder / name, {.recipe = "{}"});
  check_contact_sheet(folder / "sheet.png");
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST_F(WriterFailures, RefusesImpossibleOptions) {
  EXPECT_THROW(check_output(folder / "clip.mp4", {.fps = 0}), Error);
  EXPECT_THROW(check_output(folder / "clip.mp4", {.fps = 1000}), Error);
  EXPECT_THROW(check_output(folder / "clip.gif", {.fps = 60}), Error);
  EXPECT_THROW(check_output(folder / "clip.mp4", {.crf = 52}), Error);
  EXPECT_THROW(check_output(folder / "clip.mp4", {.crf = -1}), Error);
  EXPECT_THROW(check_output("", {}), Error);
}

TEST_F(WriterFailures, RefusesVideosWithoutFrames) {
  EXPECT_THROW(write_video(folder / "clip.mp4", {.data = clip.values.data(), .frames = 0, .height = 8, .width = 8}, {}),
               Error);
}

TEST_F(WriterFailures, RefusesContactSheetsOtherThanPng) {
  EXPECT_THROW(check_contact_sheet(folder / "sheet.jpg"), Error);
}

TEST_F(WriterFailures, RefusesRecipesOfMissingOrBrokenFiles) {
  EXPECT_THROW(read_recipe(folder / "none.mp4"), Error);
  std::ofstream(folder / "broken.mp4") << "this is no video";
  EXPECT_THROW(read_recipe(folder / "broken.mp4"), Error);
}

TEST_F(WriterFailures, RemovesAnUnfinishedPngFolderAtASecondInterrupt) {
  // The function may be called only in a process that is about to end, so a child process calls it.
  const auto holds_a_picture = [&] {
    std::error_code gone;
    for (std::filesystem::recursive_directory_iterator each(folder.path(), gone), end; each != end;
         each.increment(gone))
      if (each->path().extension() == ".png") return true;
    return false;
  };
  const auto interrupted_while_writing = [&] {
    const FileSizeLimit limit(1 << 20);
    const Clip large = make_clip(400, 256, 256);
    std::thread([&] {
      test::wait_until(holds_a_picture);
      models::Temporary::remove_all();
      _exit(130);
    }).detach();
    write_video(folder / "frames", large.view, {});
    _exit(0);
  };
  EXPECT_EXIT(interrupted_while_writing(), ::testing::ExitedWithCode(130), "");
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST_F(WriterFailures, RefusesPngFoldersWithTooLongNames) {
  EXPECT_THROW(check_output(folder / std::string(256, 'x'), {}), Error);
  EXPECT_NO_THROW(check_output(folder / std::string(255, 'x'), {}));
  EXPECT_EQ(write_video(folder / std::string(255, 'x'), clip.view, {}).encoder, "png");
}

TEST_F(WriterFailures, KeepsALinkToAnEmptyFolder) {
  std::filesystem::create_directory(folder / "there");
  std::filesystem::create_directory_symlink("there", folder / "frames");
  check_output(folder / "frames", {});
  write_video(folder / "frames", clip.view, {});
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "frames"));
  EXPECT_TRUE(std::filesystem::exists(folder / "there" / "000003.png"));
}

}  // namespace
}  // namespace sparsereel::app
