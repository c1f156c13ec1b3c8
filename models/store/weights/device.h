// Which device and dtype a run uses, and loading CUDA's libraries only when a GPU is wanted.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace sparsereel::models {

/// text: auto, cpu, cuda or cuda:N. auto takes the first GPU where libtorch can use one. Throws Error with the reason
/// (no driver, CUDA's libraries not installed, no such GPU) when a GPU was asked for by name and there is none.
c10::Device resolve_device(const std::string& text);

/// Loads the libraries that the device needs, and begins to use it, which takes a while the first time. Throws as
/// resolve_device().
void start_device(const std::string& text);

/// True where libtorch can use a GPU; loads libtorch_cuda on first use. `reason` says why not. Ask before any other
/// tensor work: ATen settles at its first look whether there is CUDA in the process.
bool cuda_available(std::string* reason = nullptr);

/// Throws Error for less than one thread, and for more than any machine has cores: with thousands a run would not end.
void check_threads(int64_t threads);

/// Bytes that can still be allocated: on a CPU MemAvailable, or what the control groups leave where that is less; on a
/// GPU what is free and what libtorch's allocator holds unused.
uint64_t free_memory(c10::Device device);

/// Bytes that this process can come to have at most: what is free, the host's swap, and what it holds already, which it
/// may give back by then. The largest number where that is unknown.
uint64_t obtainable_memory(c10::Device device);

std::string human_bytes(uint64_t bytes);  // "1.3 GiB", "16.2 MiB"

/// Waits until everything enqueued on a GPU is done; nothing to wait for on a CPU.
void synchronize(c10::Device device);

/// What libtorch keeps of a GPU's memory for the next use goes back to the driver where that has little left: kernels
/// that are loaded, and communicators, take theirs there.
void give_back_kept_memory(c10::Device device);

/// Counts bytes of a GPU that are taken from the driver, past libtorch's allocator; negative: given back.
void count_memory_of_driver(c10::Device device, int64_t bytes);

/// Bytes of a GPU that libtorch's allocator has given out at most since the last reset, and the most that was counted
/// beside it; 0 on a CPU.
uint64_t peak_memory(c10::Device device);
void reset_peak_memory(c10::Device device);

/// text: auto, fp32, bf16, fp16. auto: fp32 on a CPU; on a GPU the transformer's stored dtype, bf16 where that is fp32.
/// Throws Error for anything else.
c10::ScalarType resolve_dtype(const std::string& text, c10::Device device, c10::ScalarType stored);

/// "fp32", "bf16", "fp16"; libtorch's own name of any other.
std::string dtype_name(c10::ScalarType dtype);

}  // namespace sparsereel::models
