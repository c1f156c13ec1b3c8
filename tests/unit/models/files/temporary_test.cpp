// Tests temporary files: files of killed processes are distinguished from files that living processes use, and only one
// process at a time can reserve a name.
#include "models/files/temporary.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "models/files/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::names_in;
using test::TemporaryFolder;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A child process that runs `act` and then lives until it is killed.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void()>& act) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      act();
      [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1);
      for (;;) ::pause();
    }
    char done = 0;
    [[maybe_unused]] const ssize_t heard = ::read(ends[0], &done, 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST(Leftovers, AreRemovedAfterTheirProcessDied) {
  const TemporaryFolder folder;
  OtherProcess other([&] {
    new AtomicFile(folder / "clip.mp4");
    new AtomicFile(folder / "clip.mp4.checkpoint.safetensors");
    new Temporary(folder / "frames", Temporary::Kind::folder);
  });
  const AtomicFile ours(folder / "clip.mp4");
  ASSERT_THAT(names_in(folder.path()), SizeIs(4));
  remove_leftovers({folder / "clip.mp4", folder / "frames/"});
  EXPECT_THAT(names_in(folder.path()), SizeIs(4)) << "a live process holds them";
  other.kill();
  remove_leftovers({folder / "another.mp4"});
  EXPECT_THAT(names_in(folder.path()), SizeIs(4));
  remove_leftovers({folder / "clip.mp4", folder / "frames/"});
  EXPECT_THAT(names_in(folder.path()), ElementsAre(ours.temporary().filename().string()));
}

TEST(Leftovers, AreRemovedNextToTheTargetOfALink) {
  const TemporaryFolder folder;
  write_text(folder / "disk" / ".clip.12.partial.mp4", "x");
  write_text(folder / ".link.mp4.checkpoint.12-3.partial.safetensors", "x");
  std::filesystem::create_symlink("disk/clip.mp4", folder / "link.mp4");
  remove_leftovers({folder / "link.mp4"});
  EXPECT_THAT(names_in(folder.path()), ElementsAre("disk", "link.mp4"));
  EXPECT_THAT(names_in(folder / "disk"), IsEmpty());
}

TEST(Leftovers, DoNotIncludeOtherFiles) {
  const TemporaryFolder folder;
  for (const char* name :
       {"clip.mp4", ".clip.mp4", ".clip.x.partial.mp4", ".other.12.partial.mp4", "clip.12.partial.mp4"})
    write_text(folder / name, "x");
  std::filesystem::create_symlink("clip.mp4", folder / ".clip.12.partial.mp4");
  const std::vector<std::string> before = names_in(folder.path());
  remove_leftovers({folder / "clip.mp4", folder / "nowhere" / "clip.mp4", ""});
  EXPECT_EQ(names_in(folder.path()), before);
}

TEST(Leftovers, DoNotIncludeFilesBeingWritten) {
  const TemporaryFolder folder;
  std::atomic<int> writing = 4;
  std::vector<std::thread> writers;
  for (int i = writing; i > 0; --i) {
    writers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        try {
          AtomicFile file(folder / "clip.mp4");
          file.write("whole", 5);
          file.commit();
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      }
      --writing;
    });
  }
  while (writing > 0) remove_leftovers({folder / "clip.mp4"});
  for (std::thread& each : writers) each.join();
  EXPECT_THAT(names_in(folder.path()), ElementsAre("clip.mp4"));
}

TEST(Temporary, IsRecreatedIfItsFolderIsRemoved) {
  const TemporaryFolder folder;
  const std::string name = ".frames." + std::to_string(::getpid()) + ".partial";
  std::atomic<bool> making = true;
  std::thread other([&] {
    while (making) ::rmdir((folder / name).c_str());
  });
  for (int i = 0; i < 2000; ++i) EXPECT_NO_THROW(Temporary(folder / "frames", Temporary::Kind::folder));
  making = false;
  other.join();
}

/// While this object lives, this process has no free file descriptor, so it can open no file.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(lowest);
    const rlimit none = {.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

TEST(Temporary, IsRemovedEvenWithoutFreeDescriptors) {
  const TemporaryFolder folder;
  auto file = std::make_unique<Temporary>(folder / "clip.mp4", Temporary::Kind::file);
  auto frames = std::make_unique<Temporary>(folder / "frames", Temporary::Kind::folder);
  write_text(frames->path() / "0.png", "half");
  {
    const NoDescriptors none;
    ASSERT_LT(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    file.reset();
    frames.reset();
  }
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(Reservation, BelongsToOneProcessAndEndsWithIt) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Temporary>> kept;
  OtherProcess other([&] {
    if (!reserve(folder / "clip.mp4", kept)) ::_exit(1);
  });
  EXPECT_FALSE(reserve(folder / "clip.mp4", kept));
  EXPECT_TRUE(reserve(folder / "clip-2.mp4", kept));
  EXPECT_FALSE(reserve(folder / "clip-2.mp4", kept)) << "one process's two commands are no better";
  other.kill();
  EXPECT_TRUE(reserve(folder / "clip.mp4", kept)) << "what the killed process left does not block the name";
  EXPECT_THAT(kept, SizeIs(2));
  remove_leftovers({folder / "clip.mp4"});
  EXPECT_THAT(names_in(folder.path()), SizeIs(2));
  kept.clear();
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(Reservation, SucceedsInAFolderThatCannotHoldFiles) {
  std::vector<std::unique_ptr<Temporary>> kept;
  EXPECT_TRUE(reserve("/proc/clip.mp4", kept));
  EXPECT_THAT(kept, IsEmpty());
}

}  // namespace
}  // namespace sparsereel::models
