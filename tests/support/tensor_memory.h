// Measures the peak memory of CPU tensors in tests.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdint>

namespace sparsereel::test {

/// Counts the bytes of CPU tensors while this object lives, and their peak. Only one such object may exist at a time.
/// Tests do not use resident memory instead, because it also counts pages of libraries and freed memory that malloc
/// keeps. These differ between runs.
class TensorMemory {
 public:
  TensorMemory() : saved_(c10::GetAllocator(c10::kCPU)) {
    bytes() = 0;
    peak() = 0;
    c10::SetCPUAllocator(&allocator());
  }
  ~TensorMemory() { c10::SetCPUAllocator(saved_); }
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  /// Returns the peak in bytes. Tensors that are older than this object do not count.
  int64_t highest() const { return peak(); }

 private:
  /// Allocates with libtorch's default allocator and counts the bytes. Tensors may outlive the TensorMemory.
  struct CountingAllocator final : c10::Allocator {
    at::DataPtr allocate(size_t size) override {
      void* const data = c10::GetDefaultCPUAllocator()->raw_allocate(size);
      const int64_t now = bytes() += static_cast<int64_t>(::malloc_usable_size(data));
      for (int64_t highest = peak(); now > highest && !peak().compare_exchange_weak(highest, now);) {
      }
      return {data, data, &release, at::kCPU};
    }
    at::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* target, const void* source, size_t size) const override {
      default_copy_data(target, source, size);
    }
    static void release(void* data) {
      bytes() -= static_cast<int64_t>(::malloc_usable_size(data));
      c10::GetDefaultCPUAllocator()->raw_deallocate(data);
    }
  };

  static std::atomic<int64_t>& bytes() {
    static std::atomic<int64_t> value{0};
    return value;
  }
  static std::atomic<int64_t>& peak() {
    static std::atomic<int64_t> value{0};
    return value;
  }
  static CountingAllocator& allocator() {
    static CountingAllocator value;
    return value;
  }

  c10::Allocator* const saved_;
};

}  // namespace sparsereel::test
