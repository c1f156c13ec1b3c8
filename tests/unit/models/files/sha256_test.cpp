// Tests the hash of a file's content.
#include "models/files/sha256.h"

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

TEST(FileHash, HashesTheContent) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "abc", "abc");
  test::write_text(folder / "large", std::string(1000000, 'a') + std::string(100000, 'b'));
  test::write_text(folder / "million", std::string(1000000, 'a'));
  EXPECT_EQ(sha256_of_file(folder / "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of_file(folder / "million"), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_NE(sha256_of_file(folder / "large"), sha256_of_file(folder / "million"));
  EXPECT_TRUE(test::throws_error([&] { sha256_of_file(folder / "missing"); }, {"missing"}));
}

}  // namespace
}  // namespace sparsereel::models
