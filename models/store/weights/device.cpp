// Resolves devices and dtypes by name, measures memory, and loads libtorch_cuda.so when a GPU is wanted.
#include "models/store/weights/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "hilbert/error.h"
#include "models/store/weights/cgroup.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

std::atomic<int64_t> processes_here = 1;

constexpr auto kAllSizes = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct CudaState {
  bool available = false;
  std::string reason;  // why `available` is false
};

std::string loader_error() {
  const char* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps the error per thread
  return text == nullptr ? "unknown error of the loader" : text;
}

/// Returns the folder of the libtorch that this program uses.
fs::path libtorch_folder() {
  Dl_info info = {};
  const auto* symbol = reinterpret_cast<const void*>(&at::globalContext);
  if (::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path();
}

/// Loads CUDA's part of libtorch, which then registers itself with ATen. The program is not linked to libtorch_cuda.so:
/// it must start on machines without CUDA's libraries, and a run on a CPU should not spend time on loading them.
CudaState load_cuda() {
  if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return {false, "no NVIDIA driver: libcuda.so.1 was not found (" + loader_error() + ")"};
  const fs::path library = libtorch_folder() / "libtorch_cuda.so";
  if (!fs::exists(library)) return {false, "this libtorch is built for CPUs only: there is no " + library.string()};
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    return {false, "CUDA's libraries are not complete: " + loader_error()};
  if (!at::detail::getCUDAHooks().hasCUDA())
    return {false, "the driver finds no GPU, or is too old for this libtorch's CUDA"};
  if (at::detail::getCUDAHooks().deviceCount() < 1)
    return {false, "the driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)"};
  return {true, ""};
}

const CudaState& cuda_state() {
  static const CudaState state = load_cuda();
  return state;
}

/// Returns the N of "cuda:N". Throws Error if N is not a number from 0.
int64_t device_number(const std::string& text) {
  int64_t number = -1;
  const char* begin = text.data() + std::string("cuda:").size();
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || stop != end || number < 0)
    throw bad_option("device", text + " is unknown", "use auto, cpu, cuda or cuda:N, N from 0");
  return number;
}

/// Returns the value of a line "key:  1234 kB" in a file of /proc; 0 if there is none.
uint64_t bytes_in(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with(key + ":")) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}

uint64_t available_by_meminfo() {
  return bytes_in("/proc/meminfo", "MemAvailable");
}

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : c10::DeviceIndex{0};
}

/// Returns share_of_allocator() of the environment's settings; 1 if there are none.
double allowed_share() {
  static const double share = [] {
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
      const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets it
      if (value != nullptr) return share_of_allocator(value);
    }
    return 1.0;
  }();
  return share;
}

uint64_t free_gpu_memory(c10::Device device) {
  at::globalContext().lazyInitDevice(device.type());
  auto* allocator = c10::getDeviceAllocator(device.type());
  const auto [unclaimed, all] = allocator->getMemoryInfo(index_of(device));
  const auto stats = allocator->getDeviceStats(index_of(device));
  const auto reserved = static_cast<double>(stats.reserved_bytes.at(kAllSizes).current);
  const auto allocated = static_cast<double>(stats.allocated_bytes.at(kAllSizes).current);
  const double allowed = std::max(allowed_share() * static_cast<double>(all) - reserved, 0.0);
  // Memory that libtorch's allocator has reserved but does not use counts as free.
  return static_cast<uint64_t>(std::min(static_cast<double>(unclaimed), allowed) + std::max(reserved - allocated, 0.0));
}

/// The state of count_memory_of_driver().
struct MemoryOfDriver {
  struct Bytes {
    int64_t now = 0, most = 0;
  };
  std::mutex mutex;
  std::map<c10::DeviceIndex, Bytes> by_device;
};

MemoryOfDriver& memory_of_driver() {
  static MemoryOfDriver memory;
  return memory;
}

}  // namespace

bool cuda_available(std::string* reason) {
  const CudaState& state = cuda_state();
  if (reason != nullptr) *reason = state.reason;
  return state.available;
}

c10::Device resolve_device(const std::string& text) {
  if (text == "cpu") return c10::kCPU;
  if (text == "auto") return cuda_available() ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  if (text != "cuda" && !text.starts_with("cuda:"))
    throw bad_option("device", text + " is unknown", "use auto, cpu, cuda or cuda:N");
  const int64_t number = text == "cuda" ? 0 : device_number(text);
  std::string reason;
  if (!cuda_available(&reason))
    throw bad_option("device", text + ": " + reason, "use device cpu; 'sparsereel doctor' says what a GPU run needs");
  const c10::DeviceIndex count = at::detail::getCUDAHooks().deviceCount();
  if (number >= count)
    throw bad_option("device", text + ": there is no such GPU",
                     "use cuda:0" + (count > 1 ? " to cuda:" + std::to_string(count - 1) : ""));
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(number)};
}

void check_threads(int64_t threads) {
  // The largest machines have this many cores. The limit is not this machine's number of cores, because it may run a
  // recipe of a larger machine. A run with 2000 threads on 2 cores never ends.
  constexpr int64_t kMost = 512;
  if (threads < 1 || threads > kMost)
    throw bad_option("threads", std::to_string(threads) + " is outside 1 to " + std::to_string(kMost),
                     "give the number of CPU cores to use; this machine has " +
                         std::to_string(std::max(1U, std::thread::hardware_concurrency())));
}

uint64_t free_memory(c10::Device device) {
  return device.is_cpu() ? std::min(available_by_meminfo(), available_by_cgroup()) : free_gpu_memory(device);
}

double share_of_allocator(std::string_view settings) {
  constexpr std::string_view kKey = "per_process_memory_fraction:";
  const size_t found = settings.find(kKey);
  if (found == std::string_view::npos) return 1;
  const std::string number(settings.substr(found + kKey.size()));
  const double share = std::strtod(number.c_str(), nullptr);
  return share > 0 && share < 1 ? share : 1;
}

uint64_t page_locked_memory() {
  at::HostAllocator* allocator = at::getHostAllocator(at::kCUDA);
  return allocator == nullptr ? 0 : static_cast<uint64_t>(allocator->get_stats().allocated_bytes.current);
}

uint64_t total_host_memory() {
  return std::min(bytes_in("/proc/meminfo", "MemTotal"), limit_of_cgroup());
}

void share_host_memory(int64_t processes) {
  processes_here = std::max<int64_t>(processes, 1);
}

int64_t processes_on_host() {
  return processes_here;
}

uint64_t obtainable_memory(c10::Device device) {
  if (!device.is_cpu()) {
    const uint64_t unused = free_gpu_memory(device);
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(index_of(device));
    return unused + static_cast<uint64_t>(stats.allocated_bytes.at(kAllSizes).current);
  }
  const uint64_t available = available_by_meminfo();
  if (available == 0) return std::numeric_limits<uint64_t>::max();  // /proc is missing
  const uint64_t held =
      bytes_in("/proc/self/status", "RssAnon") + bytes_in("/proc/self/status", "VmSwap") + page_locked_memory();
  const uint64_t swap = bytes_in("/proc/meminfo", "SwapFree");
  return std::min(available + swap, available_by_cgroup()) + held;
}

std::string human_bytes(uint64_t bytes) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const double mebibytes = static_cast<double>(bytes) / kMebibyte;
  std::array<char, 32> text{};
  if (mebibytes < 1) {
    std::snprintf(text.data(), text.size(), "%.1f KiB", mebibytes * 1024);
  } else if (mebibytes < 1024) {
    std::snprintf(text.data(), text.size(), "%.1f MiB", mebibytes);
  } else {
    std::snprintf(text.data(), text.size(), "%.1f GiB", mebibytes / 1024);
  }
  return text.data();
}

void start_device(const std::string& text) {
  synchronize(resolve_device(text));
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(index_of(device));
}

void give_back_kept_memory(c10::Device device) {
  if (device.is_cpu()) return;
  auto* allocator = c10::getDeviceAllocator(device.type());
  const auto [unclaimed, all] = allocator->getMemoryInfo(index_of(device));
  // Gives memory back only if the driver has little, because this is slow: 80 ms for 16 GB in pieces of 2 MiB.
  if (unclaimed < all / 8) allocator->emptyCache();
}

void count_memory_of_driver(c10::Device device, int64_t bytes) {
  MemoryOfDriver& memory = memory_of_driver();
  const std::lock_guard lock(memory.mutex);
  auto& [now, most] = memory.by_device[index_of(device)];
  now += bytes;
  most = std::max(most, now);
}

uint64_t peak_memory(c10::Device device) {
  if (device.is_cpu()) return 0;
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(index_of(device));
  MemoryOfDriver& memory = memory_of_driver();
  const std::lock_guard lock(memory.mutex);
  return static_cast<uint64_t>(stats.allocated_bytes.at(kAllSizes).peak + memory.by_device[index_of(device)].most);
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cpu()) return;
  at::globalContext().lazyInitDevice(device.type());
  c10::getDeviceAllocator(device.type())->resetPeakStats(index_of(device));
  MemoryOfDriver& memory = memory_of_driver();
  const std::lock_guard lock(memory.mutex);
  auto& [now, most] = memory.by_device[index_of(device)];
  most = now;
}

c10::ScalarType resolve_dtype(const std::string& text, c10::Device device, c10::ScalarType stored) {
  if (text == "fp32") return at::kFloat;
  if (text == "bf16") return at::kBFloat16;
  if (text == "fp16") return at::kHalf;
  if (text == "auto") return device.is_cpu() ? at::kFloat : stored == at::kFloat ? at::kBFloat16 : stored;
  throw bad_option("dtype", text + ": one of auto, fp32, bf16, fp16 is needed", "use one of these");
}

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    default:
      return c10::toString(dtype);
  }
}

}  // namespace sparsereel::models
