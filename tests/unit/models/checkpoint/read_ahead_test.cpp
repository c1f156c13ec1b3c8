// What was read ahead is in the system's cache.
#include "models/checkpoint/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "models/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

/// Pages of the entry that the system holds.
size_t pages_held(const TensorFile& file, const TensorEntry& entry) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = entry.offset / page * page, bytes = entry.offset + entry.bytes - begin;
  std::vector<unsigned char> held((bytes + page - 1) / page);
  auto* address = static_cast<std::byte*>(const_cast<void*>(file.mapping().get())) + begin;
  if (::mincore(address, bytes, held.data()) != 0) return 0;
  return static_cast<size_t>(std::count_if(held.begin(), held.end(), [](unsigned char flags) { return flags & 1; }));
}

/// Has hardly anything of the file in memory; false where its file system always does.
bool forget(const std::filesystem::path& path, const TensorFile& file) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
  const TensorEntry& entry = file.entries().back();
  return pages_held(file, entry) * ::sysconf(_SC_PAGESIZE) < entry.bytes / 2;
}

TEST(ReadAhead, BringsTheTensorsOfAComponentIntoMemory) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "w.safetensors";
  const std::vector<float> values(4 << 20, 1.0F);
  write_safetensors(path, {{"weight", Dtype::f32, {4 << 20}, std::as_bytes(std::span(values))}});
  Component component;
  component.files = {std::make_shared<TensorFile>(path)};
  const TensorFile& file = *component.files.front();
  component.tensors["weight"] = {0, &file.entries().front()};
  if (!forget(path, file)) GTEST_SKIP() << "the file system holds its files in memory";
  const ReadAhead ahead(component);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  constexpr size_t kMost = (size_t{4} << 20) * sizeof(float) / 4096;
  while (pages_held(file, file.entries().front()) < kMost && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(pages_held(file, file.entries().front()), kMost);
}

}  // namespace
}  // namespace sparsereel::models
