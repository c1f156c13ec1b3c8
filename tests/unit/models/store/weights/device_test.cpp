// Tests how names of devices and dtypes are read, and the memory of devices.
#include "models/store/weights/device.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;

TEST(Device, FindsTheCpu) {
  EXPECT_TRUE(resolve_device("cpu").is_cpu());
}

TEST(Device, ChoosesAGpuAutomaticallyIfThereIsOne) {
  EXPECT_EQ(resolve_device("auto").is_cuda(), cuda_available());
}

TEST(Device, RefusesUnknownNames) {
  for (const char* text :
       {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999999999999", "cpu:0"})
    EXPECT_TRUE(throws_error([&] { resolve_device(text); }, {"device " + std::string(text), "unknown"})) << text;
}

TEST(Device, ExplainsWhyAGpuIsMissing) {
  std::string reason;
  if (cuda_available(&reason)) {
    EXPECT_TRUE(reason.empty());
    EXPECT_TRUE(throws_error([] { resolve_device("cuda:1000"); }, {"device cuda:1000", "no such GPU"}));
    return;
  }
  EXPECT_FALSE(reason.empty());
  EXPECT_TRUE(throws_error([] { resolve_device("cuda"); }, {"device cuda", reason}));
  EXPECT_TRUE(throws_error([] { resolve_device("cuda:1"); }, {"device cuda:1", reason}));
}

TEST(Device, ReportsFreeMemoryWithinTheTotal) {
  std::ifstream stream("/proc/meminfo");
  std::string key;
  uint64_t total_kib = 0;
  stream >> key >> total_kib;
  ASSERT_EQ(key, "MemTotal:");
  const uint64_t free = free_memory(at::kCPU);
  EXPECT_GT(free, uint64_t{1} << 20);
  EXPECT_LE(free, total_kib * 1024);
  if (cuda_available()) {
    EXPECT_GT(free_memory(resolve_device("cuda")), uint64_t{1} << 20);
  }
}

/// Claims that `bytes` bytes of the host's memory are page-locked.
class FakePageLockedMemory final : public at::HostAllocator {
 public:
  explicit FakePageLockedMemory(int64_t bytes) : bytes_(bytes) { at::setHostAllocator(at::kCUDA, this); }
  ~FakePageLockedMemory() override { at::setHostAllocator(at::kCUDA, before_); }
  FakePageLockedMemory(const FakePageLockedMemory&) = delete;
  FakePageLockedMemory& operator=(const FakePageLockedMemory&) = delete;

  at::HostStats get_stats() override {
    at::HostStats stats;
    stats.allocated_bytes.current = bytes_;
    return stats;
  }
  at::DataPtr allocate(size_t /*bytes*/) override { return {}; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
  bool record_event(void* /*memory*/, void* /*context*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {}
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  int64_t bytes_;
  at::HostAllocator* before_ = at::getHostAllocator(at::kCUDA);
};

TEST(Device, CountsPageLockedMemoryAsObtainable) {
  constexpr int64_t kLocked = int64_t{1} << 50;
  const auto bytes = static_cast<uint64_t>(kLocked);
  ASSERT_LT(obtainable_memory(at::kCPU), bytes);
  const FakePageLockedMemory weights(kLocked);
  EXPECT_GT(obtainable_memory(at::kCPU), bytes);
  EXPECT_LT(free_memory(at::kCPU), bytes);
}

TEST(Device, ReadsTheShareOfAGpuThatTheAllocatorMayUse) {
  EXPECT_EQ(share_of_allocator("expandable_segments:True,per_process_memory_fraction:0.25"), 0.25);
  EXPECT_EQ(share_of_allocator("per_process_memory_fraction:0.5,backend:native"), 0.5);
  for (const char* none :
       {"", "expandable_segments:True", "per_process_memory_fraction:x", "per_process_memory_fraction:2"})
    EXPECT_EQ(share_of_allocator(none), 1) << none;
}

TEST(Device, KnowsTheHostsMemory) {
  EXPECT_GT(total_host_memory(), 0U);
  EXPECT_GE(total_host_memory(), free_memory(at::kCPU) / 2);
}

TEST(Dtype, ConvertsToItsNameAndBack) {
  for (const char* text : {"fp32", "bf16", "fp16"})
    EXPECT_EQ(dtype_name(resolve_dtype(text, at::kCPU, at::kFloat)), text);
  EXPECT_TRUE(throws_error([] { resolve_dtype("float64", at::kCPU, at::kFloat); }, {"dtype float64"}));
}

TEST(Dtype, IsFp32OnACpuAndTheStoredOneOnAGpuByDefault) {
  EXPECT_EQ(resolve_dtype("auto", at::kCPU, at::kBFloat16), at::kFloat);
  EXPECT_EQ(resolve_dtype("auto", at::Device(at::kCUDA, 0), at::kBFloat16), at::kBFloat16);
  EXPECT_EQ(resolve_dtype("auto", at::Device(at::kCUDA, 0), at::kHalf), at::kHalf);
  EXPECT_EQ(resolve_dtype("auto", at::Device(at::kCUDA, 0), at::kFloat), at::kBFloat16) << "kernels have no fp32";
}

}  // namespace
}  // namespace sparsereel::models
