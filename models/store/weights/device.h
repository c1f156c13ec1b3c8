// Chooses the device and dtype of a run, and loads CUDA's libraries only when a GPU is wanted.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Parses auto, cpu, cuda or cuda:N. auto takes the first GPU if libtorch can use one. If a GPU is named and cannot be
/// used, throws Error with the reason (no driver, CUDA's libraries not installed, no such GPU).
c10::Device resolve_device(const std::string& text);

/// Loads the libraries that the device needs and initializes it, which takes a while the first time. Throws as
/// resolve_device() does.
void start_device(const std::string& text);

/// Returns true if libtorch can use a GPU; loads libtorch_cuda on first use. `reason` receives why not. Call it before
/// any other tensor work, because ATen decides at its first look whether the process has CUDA.
bool cuda_available(std::string* reason = nullptr);

/// Throws Error for less than one thread, and for more than any machine has cores: with thousands a run would not end.
void check_threads(int64_t threads);

/// Returns the bytes that can still be allocated. CPU: MemAvailable, or what the control groups leave if that is less.
/// GPU: free memory plus what libtorch's allocator holds unused, within per_process_memory_fraction of
/// PYTORCH_ALLOC_CONF.
uint64_t free_memory(c10::Device device);

/// Returns the host memory that libtorch has page-locked for GPUs, in use or cached. The kernel counts it neither as
/// available nor as the process's own anonymous pages.
uint64_t page_locked_memory();

/// Returns the bytes of the host's memory, or the limit of the control groups if that is less. 0 if unknown.
uint64_t total_host_memory();

/// Sets how many processes of this program, this one included, divide this host's memory among themselves.
void share_host_memory(int64_t processes);
/// Returns the number that share_host_memory() has set; 1 if it was not called.
int64_t processes_on_host();

/// Returns an upper bound of the bytes that this process can get: free memory, the host's swap, and the memory that the
/// process holds already and may give back. The largest uint64_t if unknown.
uint64_t obtainable_memory(c10::Device device);

/// Returns the share of a GPU that the settings of libtorch's allocator allow: "per_process_memory_fraction:0.5" gives
/// 0.5. 1 if they set no limit.
double share_of_allocator(std::string_view settings);

std::string human_bytes(uint64_t bytes);  // "1.3 GiB", "16.2 MiB"

/// Waits until everything enqueued on a GPU is done. Does nothing on a CPU.
void synchronize(c10::Device device);

/// Gives GPU memory that libtorch caches back to the driver, if the driver has little left. Kernels that are loaded,
/// and communicators, allocate from the driver.
void give_back_kept_memory(c10::Device device);

/// Counts bytes of GPU memory that are taken from the driver without libtorch's allocator; negative if given back.
void count_memory_of_driver(c10::Device device, int64_t bytes);

/// Returns the bytes of GPU memory: the peak of libtorch's allocator plus the peak of count_memory_of_driver() since
/// the last reset. 0 on a CPU.
uint64_t peak_memory(c10::Device device);
void reset_peak_memory(c10::Device device);

/// Parses auto, fp32, bf16 or fp16. auto is fp32 on a CPU. On a GPU it is the transformer's stored dtype, or bf16 if
/// that is fp32. Throws Error for anything else.
c10::ScalarType resolve_dtype(const std::string& text, c10::Device device, c10::ScalarType stored);

/// Returns "fp32", "bf16" or "fp16"; for any other dtype, libtorch's name.
std::string dtype_name(c10::ScalarType dtype);

}  // namespace sparsereel::models
