// `sparsereel doctor`: version, build, CPU, GPU, encoders, the tiny model; each gap with how to close it.
#include "app/commands/doctor.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "app/config_file.h"
#include "app/machine.h"
#include "app/media/video.h"
#include "app/report.h"
#include "attention/attention.h"
#include "models/device.h"

#ifdef SPARSEREEL_CUDA
#include "attention/cuda/device.h"
#endif

namespace sparsereel::app {
namespace {

#ifdef SPARSEREEL_CUDA
constexpr bool kCudaBuild = true;
#else
constexpr bool kCudaBuild = false;
#endif

void line(const std::string& what, const std::string& value) {
  std::cout << what << std::string(what.size() < 12 ? 12 - what.size() : 1, ' ') << value << "\n";
}

#ifdef SPARSEREEL_CUDA
std::string machine_code(const attention::cuda::Gpu& gpu) {
  if (!gpu.problem.empty()) return "none: " + gpu.problem;
  const std::string code = "sm_" + std::to_string(gpu.machine_code);
  return gpu.compiled_from_ptx ? code + ", compiled by the driver from PTX" : code;
}

/// Which machine code of this build each GPU would run.
void report_kernels() {
  std::string reason;
  const auto gpus = attention::cuda::list_gpus(&reason);
  if (gpus.empty()) line("MISSING", "CUDA's runtime sees no GPU: " + reason);
  for (const attention::cuda::Gpu& gpu : gpus) line("kernels", machine_code(gpu) + " on " + gpu.name);
}
#else
void report_kernels() {
  line("MISSING", "THIS BUILD HAS NO CUDA KERNELS, though a GPU is present");
  line("", "run ./app/quickstart (it brings nvcc), or configure with -DSPARSEREEL_CUDA=ON");
}
#endif

void report_gpu() {
  const GpuDriver driver = find_gpu_driver();
  std::string reason;
  const bool usable = models::cuda_available(&reason);
  if (driver.gpus.empty()) {
    line("GPU", driver.found ? "none (a driver for CUDA " + driver.version + " is there)" : "none (no NVIDIA driver)");
    return;
  }
  for (const std::string& gpu : driver.gpus) line("GPU", gpu + ", driver for CUDA " + driver.version);
  if (usable) {
    line("", "usable through libtorch");
  } else {
    line("MISSING", "libtorch cannot use the GPU: " + reason);
    line("", "run ./app/quickstart on this machine: it installs libtorch with CUDA's libraries");
  }
  report_kernels();
  const std::string why =
      attention::unsupported_reason(attention::Mode::sparse, at::Device(at::kCUDA, 0), at::kBFloat16);
  line("", why.empty() ? "sparse attention runs on it" : "sparse attention does not run on it: " + why);
}

void report_media() {
  const MediaReport media = media_report();
  if (media.libraries.empty()) {
    line("MISSING", "media libraries: output is .y4m and .safetensors only");
    line("", "install FFmpeg's and OpenCV's development packages and build with -DSPARSEREEL_MEDIA=ON");
    return;
  }
  line("media", media.libraries);
  std::string encoders;
  for (const std::string& name : media.video_encoders) encoders += (encoders.empty() ? "" : ", ") + name;
  line("encoders", encoders.empty() ? "none for MP4" : encoders);
  if (media.video_encoders.empty() || media.video_encoders.front() != "libx264") {
    line("MISSING", "libx264, the best encoder for MP4");
    line("", "install an FFmpeg built with libx264 (Debian's and Ubuntu's libavcodec has it)");
  }
}

void report_model() {
  const std::filesystem::path tiny = data_folder() / "assets" / "tiny";
  if (std::filesystem::exists(tiny / "model_index.json")) {
    line("tiny model", tiny.string());
    return;
  }
  line("MISSING", "the tiny model, " + tiny.string());
  line("", "take it from the source tree's assets/tiny, or name a checkpoint with -m");
}

}  // namespace

void doctor() {
  line("sparsereel", SPARSEREEL_VERSION);
#ifdef __clang__
  line("built by", "clang " __clang_version__);
#else
  line("built by", "g++ " __VERSION__);
#endif
  line("libtorch", SPARSEREEL_TORCH_VERSION);
  line("CUDA", kCudaBuild ? "compiled in" : "not compiled in (CPU build)");
  line("CPU", cpu_model() + ", " + std::to_string(std::thread::hardware_concurrency()) + " threads, " +
                  at::get_cpu_capability() + " in libtorch");
  line("threads", std::to_string(at::get_num_threads()) + " used by default");
  line("memory", human_bytes(models::free_memory(at::kCPU)) + " free");
  report_gpu();
  report_media();
  report_model();
}

}  // namespace sparsereel::app
