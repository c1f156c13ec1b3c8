// Reads the processor's name from /proc. Loads the GPU driver by dlopen, so that the program also runs on machines
// without it.
#include "app/machine.h"

#include <dlfcn.h>
#include <sys/utsname.h>

#include <array>
#include <fstream>

namespace sparsereel::app {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);)
    if (const size_t colon = text.find(": "); text.starts_with("model name") && colon != std::string::npos)
      return text.substr(colon + 2);
  return "unknown CPU";
}

std::string operating_system() {
  std::string name = "unknown system";
  std::ifstream info("/etc/os-release");
  const std::string key = "PRETTY_NAME=";
  for (std::string text; std::getline(info, text);)
    if (text.starts_with(key)) name = text.substr(key.size());
  std::erase(name, '"');
  utsname kernel{};
  return uname(&kernel) == 0 ? name + ", " + kernel.sysname + " " + kernel.release : name;
}

std::string source_commit() {
  return SPARSEREEL_COMMIT;
}

GpuDriver find_gpu_driver() {
  GpuDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver;
  const auto symbol = [&]<typename Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  };
  int (*initialize)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  if (!symbol("cuInit", initialize) || !symbol("cuDriverGetVersion", driver_version) ||
      !symbol("cuDeviceGetCount", device_count) || !symbol("cuDeviceGetName", device_name))
    return driver;
  driver.found = true;
  int version = 0, count = 0;
  if (driver_version(&version) == 0)
    driver.version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  if (initialize(0) != 0 || device_count(&count) != 0) return driver;
  for (int i = 0; i < count; ++i) {
    std::array<char, 256> name{};
    if (device_name(name.data(), static_cast<int>(name.size()), i) == 0) driver.gpus.emplace_back(name.data());
  }
  return driver;
}

}  // namespace sparsereel::app
