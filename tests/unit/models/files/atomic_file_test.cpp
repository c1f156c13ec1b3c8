// Tests that output files appear complete or not at all.
#include "models/files/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::names_in;
using test::read_text;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;
using ::testing::HasSubstr;
using ::testing::Test;

/// While this object lives, no file of this process can grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST(AtomicFile, CreatesOnlyTheTargetOnCommit) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "clip.mp4");
  file.write("abc", 3);
  file.write("def", 3);
  EXPECT_FALSE(std::filesystem::exists(folder / "clip.mp4"));
  file.commit();
  EXPECT_EQ(read_text(folder / "clip.mp4"), "abcdef");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"clip.mp4"});
}

bool is_any(const std::filesystem::path& /*file*/) {
  return true;
}

TEST(AtomicFile, TakesBackWhatItPlaced) {
  const TemporaryFolder folder;
  const auto place = [&](const char* name, bool takes_back) {
    AtomicFile file(folder / name);
    file.write("new", 3);
    file.complete();
    EXPECT_NE(read_text(folder / "old"), "new");
    EXPECT_TRUE(file.place(is_any));
    EXPECT_EQ(read_text(folder / name), "new");
    if (takes_back) file.take_back();
  };
  write_text(folder / "old", "old");
  place("old", true);
  EXPECT_EQ(read_text(folder / "old"), "old");
  place("other", true);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"old"});
  place("other", false);
  place("old", false);
  EXPECT_EQ(read_text(folder / "old"), "new");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"old", "other"}));
}

/// A folder in which this program writes the file "own" while another program writes a file of the same name.
class SharedName : public Test {
 protected:
  static bool is_own(const std::filesystem::path& path) { return read_text(path) == "own"; }
  /// Gives the name to a file of the other program, as a program does that renames its finished file.
  void take_name() const {
    write_text(folder_ / "theirs", "theirs");
    std::filesystem::rename(folder_ / "theirs", file_);
  }
  /// Returns is_own(), but calls `meanwhile` after the first look.
  IsOwn during_the_first_look(std::function<void()> meanwhile) {
    return [this, meanwhile = std::move(meanwhile)](const std::filesystem::path& path) {
      const bool result = is_own(path);
      if (looks_++ == 0) meanwhile();
      return result;
    };
  }
  void expect_only(const std::string& text) const {
    EXPECT_EQ(names_in(folder_.path()), std::vector<std::string>{"file"});
    EXPECT_EQ(read_text(file_), text);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "file";
  int looks_ = 0;
};

TEST_F(SharedName, IsGivenToANewFileIfItBelongedToAnOwnFile) {
  for (const char* before : {"", "own", "theirs"}) {
    if (*before != '\0') write_text(file_, before);
    const bool may = before != std::string("theirs");
    {
      AtomicFile file(file_);
      file.write("own", 3);
      EXPECT_EQ(file.place(is_own), may) << before;
    }
    expect_only(may ? "own" : "theirs");
  }
}

TEST_F(SharedName, StaysWithAFileThatTakesItDuringTheLook) {
  write_text(file_, "own");
  {
    AtomicFile file(file_);
    file.write("new", 3);
    EXPECT_FALSE(file.place(during_the_first_look([this] { take_name(); })));
    file.take_back();
  }
  EXPECT_EQ(looks_, 2);
  expect_only("theirs");
}

TEST_F(SharedName, MayGetFreeDuringTheLook) {
  write_text(file_, "own");
  {
    AtomicFile file(file_);
    file.write("new", 3);
    EXPECT_TRUE(file.place(during_the_first_look([this] { std::filesystem::remove(file_); })));
  }
  expect_only("new");
}

TEST_F(SharedName, StaysWithAFileThatReplacesThePlacedOne) {
  for (const bool is_older : {false, true}) {
    std::filesystem::remove(file_);
    if (is_older) write_text(file_, "own");
    {
      AtomicFile file(file_);
      file.write("new", 3);
      EXPECT_TRUE(file.place(is_own));
      take_name();
      file.take_back();
    }
    expect_only("theirs");
  }
}

TEST_F(SharedName, OfAFolderIsNotTaken) {
  AtomicFile file(file_);
  std::filesystem::create_directory(file_);
  EXPECT_FALSE(file.place(is_any));
  EXPECT_TRUE(std::filesystem::is_directory(file_));
}

TEST_F(SharedName, IsRemovedWithAnOwnFileOnly) {
  remove_if("", is_any);
  remove_if(file_, is_any);
  remove_if(folder_.path(), is_any);
  write_text(file_, "theirs");
  remove_if(file_, is_own);
  expect_only("theirs");
  write_text(file_, "own");
  remove_if(file_, during_the_first_look([this] { take_name(); }));
  EXPECT_EQ(looks_, 2);
  expect_only("theirs");
  write_text(file_, "own");
  remove_if(file_, is_own);
  EXPECT_TRUE(names_in(folder_.path()).empty());
}

TEST_F(SharedName, StaysWithAFileThatCannotBeRead) {
  const IsOwn fails_later = [this](const std::filesystem::path& /*path*/) {
    if (looks_++ % 2 == 1) throw Error(ErrorKind::bad_input, "cannot be read", "");
    return true;
  };
  write_text(file_, "theirs");
  remove_if(file_, fails_later);
  expect_only("theirs");
  {
    AtomicFile file(file_);
    file.write("new", 3);
    EXPECT_FALSE(file.place(fails_later));
  }
  EXPECT_EQ(looks_, 4);
  expect_only("theirs");
}

TEST_F(SharedName, IsGivenBackEvenIfTheNewFileWasRemoved) {
  write_text(file_, "own");
  {
    AtomicFile file(file_);
    file.write("new", 3);
    EXPECT_TRUE(file.place(is_own));
    std::filesystem::remove(file_);
    file.take_back();
  }
  expect_only("own");
}

TEST_F(SharedName, IsRemovedWithALinkToAnOwnFile) {
  write_text(folder_ / "target", "own");
  std::filesystem::create_symlink("target", file_);
  remove_if(file_, is_own);
  EXPECT_EQ(names_in(folder_.path()), std::vector<std::string>{"target"});
}

#if defined(__has_feature)
#define SPARSEREEL_IS_SANITIZED __has_feature(address_sanitizer)
#else
#define SPARSEREEL_IS_SANITIZED 0
#endif
#if !SPARSEREEL_IS_SANITIZED  // sanitizers need descriptors for their checks
TEST_F(SharedName, IsRemovedEvenIfNoTemporaryCanBeMade) {
  write_text(file_, "own");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  remove_if(file_, is_any);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(names_in(folder_.path()).empty());
}
#endif

TEST(AtomicFile, RefusesATooLongNameAtOnce) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error([&] { AtomicFile(folder / (std::string(252, 'x') + ".mp4")); }, {"xxx.mp4", "too long"}));
  AtomicFile longest(folder / (std::string(251, 'x') + ".mp4"));
  longest.commit();
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{std::string(251, 'x') + ".mp4"});
}

TEST(AtomicFile, PutsTheTemporaryNextToTheTargetWithItsExtension) {
  const TemporaryFolder folder;
  const AtomicFile file(folder / "clip.mp4");
  EXPECT_EQ(file.temporary().parent_path(), folder.path());
  EXPECT_EQ(file.temporary().extension(), ".mp4");
  EXPECT_EQ(file.temporary().filename().string(), ".clip." + std::to_string(::getpid()) + ".partial.mp4");
}

TEST(AtomicFile, RecoversTheTargetFromTheTemporarysName) {
  const TemporaryFolder folder;
  for (const char* name : {"clip.mp4", "clip", "a.b.mp4.checkpoint.safetensors", "a.12.partial.mp4"}) {
    const AtomicFile first(folder / name), second(folder / name);
    EXPECT_EQ(Temporary::target_of(first.temporary().filename().string()), name);
    EXPECT_EQ(Temporary::target_of(second.temporary().filename().string()), name);
  }
  for (const char* name : {"clip.mp4", ".clip.mp4", ".clip.partial.mp4", ".clip.x.partial.mp4", "clip.12.partial.mp4"})
    EXPECT_EQ(Temporary::target_of(name), "") << name;
}

TEST(AtomicFile, KeepsTheOldFileWithoutACommit) {
  const TemporaryFolder folder;
  write_text(folder / "clip.gif", "old");
  {
    AtomicFile file(folder / "clip.gif");
    file.write("new", 3);
  }
  EXPECT_EQ(read_text(folder / "clip.gif"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"clip.gif"});
}

TEST(AtomicFile, LetsOthersWriteTheTemporaryByPath) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "clip.mp4");
  write_text(file.temporary(), "written elsewhere");
  file.commit();
  EXPECT_EQ(read_text(folder / "clip.mp4"), "written elsewhere");
}

TEST(AtomicFile, ReplacesTheFileBehindASymbolicLink) {
  const TemporaryFolder folder;
  write_text(folder / "real.txt", "old");
  std::filesystem::create_symlink(folder / "real.txt", folder / "link.txt");
  AtomicFile file(folder / "link.txt");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.txt"));
  EXPECT_EQ(read_text(folder / "real.txt"), "new");
}

TEST(AtomicFile, CreatesTheTargetOfADanglingLink) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "data");
  std::filesystem::create_symlink("second.txt", folder / "first.txt");
  std::filesystem::create_symlink("data/real.txt", folder / "second.txt");
  AtomicFile file(folder / "first.txt");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "first.txt"));
  EXPECT_EQ(read_text(folder / "data" / "real.txt"), "new");
}

TEST(AtomicFile, ExplainsWhatBlocksThePath) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("b.txt", folder / "a.txt");
  std::filesystem::create_symlink("a.txt", folder / "b.txt");
  write_text(folder / "file", "old");
  const auto remedy = [&](const std::string& name) -> std::string {
    try {
      const AtomicFile file(folder / name);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.remedy();
    }
    return {};
  };
  EXPECT_THAT(remedy("a.txt"), HasSubstr("link"));
  EXPECT_THAT(remedy("file/x.mp4"), HasSubstr("a part of this path is a file"));
  EXPECT_THAT(remedy("none/x.mp4"), HasSubstr("create the folder"));
}

TEST(AtomicFile, KeepsThePermissionsOfTheReplacedFile) {
  const TemporaryFolder folder;
  for (const mode_t mode : {0600U, 0464U, 0664U, 0200U}) {
    const std::filesystem::path path = folder / std::to_string(mode);
    write_text(path, "old");
    ASSERT_EQ(::chmod(path.c_str(), mode | S_ISUID), 0);  // set-user-ID, which the new file must not have
    AtomicFile file(path);
    write_text(file.temporary(), "new");
    file.commit();
    struct stat status = {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(read_text(path), "new");
  }
}

TEST(AtomicFile, RefusesToReplaceReadOnlyFiles) {
  const TemporaryFolder folder;
  write_text(folder / "kept.txt", "old");
  ASSERT_EQ(::chmod((folder / "kept.txt").c_str(), 0444), 0);
  std::filesystem::create_symlink("kept.txt", folder / "link.txt");
  for (const char* name : {"kept.txt", "link.txt"}) {
    try {
      const AtomicFile file(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("read-only")));
    }
  }
  EXPECT_EQ(read_text(folder / "kept.txt"), "old");
}

TEST(AtomicFile, CreatesNewFilesWithDefaultPermissions) {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(0022);
  AtomicFile file(folder / "clip.mp4");
  file.commit();
  ::umask(mask);
  struct stat status = {};
  ASSERT_EQ(::stat((folder / "clip.mp4").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644U);
}

TEST(AtomicFile, UsesSeparateTemporariesForOneTarget) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "clip.mp4"), second(folder / "clip.mp4");
  EXPECT_NE(first.temporary(), second.temporary());
  first.write("1", 1);
  second.write("2", 1);
  first.commit();
  second.commit();
  EXPECT_EQ(read_text(folder / "clip.mp4"), "2");
}

TEST(AtomicFile, ShortensLongNamesOnlyInTheTemporary) {
  const TemporaryFolder folder;
  const std::string name = std::string(251, 'n') + ".mp4";
  AtomicFile file(folder / name);
  file.commit();
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{name});
}

TEST(AtomicFile, ReportsAFullDiskAndLeavesNoFile) {
  const TemporaryFolder folder;
  {
    const FileSizeLimit limit(4096);
    const std::string data(10000, 'x');
    EXPECT_TRUE(throws_error(
        [&] {
          AtomicFile file(folder / "clip.mp4");
          file.write(data.data(), data.size());
        },
        {(folder / "clip.mp4").string(), "File too large"}));
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFile, ReportsARemovedTemporaryAtCommit) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error(
      [&] {
        AtomicFile file(folder / "clip.mp4");
        std::filesystem::remove(file.temporary());
        file.commit();
      },
      {(folder / "clip.mp4").string(), "No such file"}));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFile, ReportsAMissingFolderAtOnce) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error([&] { AtomicFile(folder / "nowhere/clip.mp4"); }, {"nowhere/clip.mp4", "No such file"}));
}

TEST(AtomicFile, RefusesAFolderOrDeviceAsTarget) {
  const TemporaryFolder folder;
  EXPECT_TRUE(throws_error([&] { AtomicFile(folder.path()); }, {folder.path().string(), "is a folder"}));
  EXPECT_TRUE(throws_error([&] { AtomicFile(folder.path() / ""); }, {"is a folder"}));
  EXPECT_TRUE(throws_error([] { AtomicFile("/dev/null"); }, {"/dev/null", "device"}));
}

TEST(AtomicFile, RemovesAllTemporariesWhenTheProcessEnds) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile done(folder / "done.mp4");
    done.commit();
    AtomicFile first(folder / "a.mp4"), second(folder / "b.gif");
    first.write("x", 1);
    std::thread([] {
      Temporary::remove_all();
      ::_exit(42);
    }).join();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"done.mp4"});
}

}  // namespace
}  // namespace sparsereel::models
