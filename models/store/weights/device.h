// Chooses the device and dtype of a run, and measures memory. Loads CUDA's libraries only if a run asks for a GPU.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Parses auto, cpu, cuda or cuda:N. auto is the first GPU if libtorch can use one, or else the CPU. If a GPU is named
/// and cannot be used, throws Error with the reason (no driver, CUDA's libraries not installed, no such GPU).
c10::Device resolve_device(const std::string& text);

/// Loads the libraries that the device needs, and initializes the device; the first call takes a while. Throws Error as
/// resolve_device() does.
void start_device(const std::string& text);

/// Returns true if libtorch can use a GPU; loads libtorch_cuda on first use. If it cannot, the text to which `reason`
/// points is set to the reason; `reason` may be null. Call this before any other work with tensors: ATen checks for
/// CUDA only once.
bool cuda_available(std::string* reason = nullptr);

/// Throws Error unless `threads` is from 1 to 512. With thousands of threads a run would not end.
void check_threads(int64_t threads);

/// Returns the bytes that can still be allocated. On a CPU, this is the kernel's MemAvailable, or what the control
/// groups leave if that is less. On a GPU, this is the free memory, plus the memory that libtorch's allocator holds but
/// does not use. The limit per_process_memory_fraction of PYTORCH_ALLOC_CONF is respected.
uint64_t free_memory(c10::Device device);

/// Returns the host memory that libtorch has page-locked for GPUs, in use or cached. The kernel counts this memory
/// neither as available nor among the process's anonymous pages.
uint64_t page_locked_memory();

/// Returns the size of the host's memory in bytes, or the limit of the control groups if that is less; 0 if unknown.
uint64_t total_host_memory();

/// Sets how many processes of this program share this host's memory, including this process.
void share_host_memory(int64_t processes);
/// Returns the number that share_host_memory() has set; 1 if it was not called.
int64_t processes_on_host();

/// Returns an upper bound of the bytes that this process can get: free memory, free swap of the host, and the memory
/// that the process already has, which it can reuse. The largest uint64_t if unknown.
uint64_t obtainable_memory(c10::Device device);

/// Returns the fraction of a GPU's memory that the settings of libtorch's allocator (PYTORCH_ALLOC_CONF) allow:
/// "per_process_memory_fraction:0.5" gives 0.5. Returns 1 if they set no limit.
double share_of_allocator(std::string_view settings);

std::string human_bytes(uint64_t bytes);  // "1.3 GiB", "16.2 MiB"

/// Waits until all work that was enqueued on a GPU is done. Does nothing on a CPU.
void synchronize(c10::Device device);

/// If the driver has little free memory, gives the memory that libtorch caches back to the driver. Call it before a
/// kernel is loaded or a communicator (NCCL) is created, because these allocate from the driver.
void give_back_kept_memory(c10::Device device);

/// Adds `bytes` to the count of GPU memory that was allocated without libtorch's allocator. A negative number means
/// that memory was freed.
void count_memory_of_driver(c10::Device device, int64_t bytes);

/// Returns the peak of used GPU memory in bytes since the last reset: the peak of libtorch's allocator plus the peak of
/// count_memory_of_driver(). 0 on a CPU.
uint64_t peak_memory(c10::Device device);
void reset_peak_memory(c10::Device device);

/// Parses auto, fp32, bf16 or fp16. auto is fp32 on a CPU. On a GPU it is `stored`, the transformer's dtype in its
/// file, or bf16 if `stored` is fp32. Throws Error for any other text.
c10::ScalarType resolve_dtype(const std::string& text, c10::Device device, c10::ScalarType stored);

/// Returns "fp32", "bf16" or "fp16"; for any other dtype, libtorch's name.
std::string dtype_name(c10::ScalarType dtype);

}  // namespace sparsereel::models
