// Tests mapped files that are truncated while they are read: reading must not end the process, and the file must report
// that it was truncated.
#include "models/files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

class MappedFileTest : public ::testing::Test {
 protected:
  fs::path write(const std::string& name) const {
    write_text(folder_ / name, std::string(4 * page_, 'x'));
    return folder_ / name;
  }

  const TemporaryFolder folder_;
  const size_t page_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
};

TEST_F(MappedFileTest, ReadsZerosBeyondTheEndOfATruncatedFile) {
  const fs::path path = write("a");
  const MappedFile file(path);
  const auto whole = std::make_unique<MappedFile>(write("b"));
  fs::resize_file(path, page_ + 1);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) readers.emplace_back([&] { EXPECT_EQ(file.bytes()[3 * page_], std::byte{0}); });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(file.bytes()[page_], std::byte{'x'});
  EXPECT_EQ(file.bytes()[2 * page_], std::byte{0});
  EXPECT_TRUE(throws_error([&] { file.check_whole(); }, {path.string(), "became shorter"}));
  EXPECT_NO_THROW(whole->check_whole()) << "another file";
  fs::resize_file(path, 4 * page_);
  EXPECT_TRUE(throws_error([&] { file.check_whole(); }, {path.string()})) << "what was read was not the file";
}

TEST_F(MappedFileTest, DetectsTruncationByLessThanAPage) {
  const fs::path path = write("a");
  const MappedFile file(path);
  fs::resize_file(path, 4 * page_ - 1);
  EXPECT_EQ(file.bytes().back(), std::byte{0});
  EXPECT_TRUE(throws_error([&] { file.check_whole(); }, {path.string(), "became shorter"}));
}

TEST_F(MappedFileTest, CopiesAnyRange) {
  std::string text(5 << 20, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 / 7);
  write_text(folder_ / "long", text);
  const MappedFile file(folder_ / "long");
  for (const auto& [offset, size] : {std::pair<size_t, size_t>{0, text.size()}, {1, 3 << 20}, {text.size(), 0}}) {
    std::string copy(size, '\0');
    file.read(offset, std::as_writable_bytes(std::span(copy)), text.size());
    EXPECT_TRUE(copy == text.substr(offset, size)) << offset;
  }
}

TEST_F(MappedFileTest, RefusesToCopyBeyondTheEndOfATruncatedFile) {
  const fs::path path = write("a");
  const MappedFile file(path);
  fs::resize_file(path, page_ + 1);
  std::vector<std::byte> copy(4 * page_);
  EXPECT_TRUE(throws_error([&] { file.read(0, copy, copy.size()); }, {path.string(), "became shorter"}));
  EXPECT_NO_THROW(file.read(0, std::span(copy).first(page_ + 1), copy.size()));
  EXPECT_EQ(copy[page_], std::byte{'x'});
}

TEST_F(MappedFileTest, ReadsAFileThatWasRemovedAndReplaced) {
  const fs::path path = write("a");
  const MappedFile file(path);
  fs::remove(path);
  write_text(path, "y");
  EXPECT_EQ(file.bytes().back(), std::byte{'x'});
  EXPECT_NO_THROW(file.check_whole());
}

TEST_F(MappedFileTest, RefusesEmptyAndSpecialFiles) {
  write_text(folder_ / "empty", "");
  EXPECT_TRUE(throws_error([&] { MappedFile(folder_ / "empty"); }, {"empty", "truncated"}));
  EXPECT_TRUE(throws_error([&] { MappedFile(folder_ / "none"); }, {"none", "cannot be opened"}));
  EXPECT_TRUE(throws_error([&] { MappedFile{folder_.path()}; }, {"not an ordinary file"}));
}

/// Reads behind the end of a file through a mapping that no MappedFile made, which raises SIGBUS.
void read_behind_the_end(const fs::path& path, size_t page) {
  const MappedFile ours(path);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const auto* bytes =
      static_cast<const volatile char*>(::mmap(nullptr, 8 * page, PROT_READ, MAP_PRIVATE, ::fileno(file), 0));
  static_cast<void>(bytes[6 * page]);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(address_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif

TEST_F(MappedFileTest, LeavesOtherBusErrorsUnhandled) {
  const fs::path path = write("a");
  if (kIsSanitized)  // our handler passes the signal on to the sanitizer's older handler
    EXPECT_EXIT(read_behind_the_end(path, page_), ::testing::ExitedWithCode(1), "AddressSanitizer: BUS");
  else
    EXPECT_EXIT(read_behind_the_end(path, page_), ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace sparsereel::models
