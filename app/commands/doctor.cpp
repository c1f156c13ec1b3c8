// `sparsereel doctor`: shows version, build, CPU, GPU, encoders and the tiny model, and says how to get what is
// missing.
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "app/commands/commands.h"
#include "app/counted.h"
#include "app/jobs/report.h"
#include "app/links.h"
#include "app/machine.h"
#include "app/media/video.h"
#include "app/options/option_group.h"
#include "app/options/tiny_model.h"
#include "attention/attention.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"
#include "models/layers/fp8.h"
#include "models/parallel/nccl_library.h"
#include "models/store/configs/data_folder.h"
#include "models/store/weights/device.h"

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

/// Collects the findings, as lines for people and as JSON fields for programs.
class Findings {
 public:
  /// Adds a line. An empty `what` continues the previous finding.
  void line(const std::string& what, const std::string& value) {
    text_ += what + std::string(what.size() < 12 ? 12 - what.size() : 1, ' ') + value + "\n";
  }
  void add(const std::string& what, const std::string& value, const char* field, const nlohmann::json& known) {
    line(what, value);
    json_[field] = known;
  }
  void missing(const std::string& what, const std::string& remedy) {
    line("MISSING", what);
    line("", remedy);
    json_["missing"].push_back({{"what", what}, {"remedy", remedy}});
  }
  void set(const char* field, const nlohmann::json& known) { json_[field] = known; }

  const std::string& text() const { return text_; }
  const nlohmann::json& json() const { return json_; }

 private:
  std::string text_;
  nlohmann::json json_ = {{"missing", nlohmann::json::array()}};
};

constexpr const char* kQuickstart = "run ./app/quickstart on this machine: it installs libtorch with CUDA's libraries";

/// How the program was installed on this machine.
struct Installation {
  std::string kind;  // "wheel", "tarball", "deb", "cmake --install" or "build"
  std::filesystem::path folder;
};

Installation find_installation() {
  constexpr uint64_t kMostBytes = 1 << 16;
  const std::filesystem::path data = models::data_folder(), package = data / "package.json";
  if (std::filesystem::exists(package)) {
    const nlohmann::json json =
        models::parse_json_if_valid(models::read_regular_file(package, kMostBytes, "reinstall"));
    return {json.is_object() ? json.value("kind", "package") : "package", data.parent_path().parent_path()};
  }
  const bool installed = data.filename() == "sparsereel" && data.parent_path().filename() == "share";
  return {installed ? "cmake --install" : "build", installed ? data.parent_path().parent_path() : data};
}

/// Returns the remedy for a GPU that cannot be used. A package has no sources to build, so its remedy is another
/// package; `without_package` is the remedy for a build.
std::string gpu_remedy(const std::string& without_package) {
  const std::string kind = find_installation().kind;
  if (kind == "wheel") return "install a wheel of sparsereel that was built with CUDA, and torch with its dependencies";
  if (kind == "tarball" || kind == "deb")
    return "install a " + kind + " that was built with CUDA, and run 'sparsereel-install-torch DIR --gpu'";
  return without_package;
}

#ifdef SPARSEREEL_CUDA
std::string machine_code(const attention::cuda::Gpu& gpu) {
  if (!gpu.problem.empty()) return "none: " + gpu.problem;
  const std::string code = "sm_" + std::to_string(gpu.machine_code);
  return gpu.compiled_from_ptx ? code + ", compiled by the driver from PTX" : code;
}

/// Finds, for each GPU, the machine code of this build that it would run.
void find_kernels(Findings& findings) {
  std::string reason;
  const auto gpus = attention::cuda::list_gpus(&reason);
  if (gpus.empty()) findings.missing("CUDA's runtime sees no GPU: " + reason, "check the driver with nvidia-smi");
  nlohmann::json kernels = nlohmann::json::array();
  for (const attention::cuda::Gpu& gpu : gpus) {
    findings.line("kernels", machine_code(gpu) + " on " + gpu.name);
    kernels.push_back({{"gpu", gpu.name}, {"code", machine_code(gpu)}});
  }
  findings.set("kernels", kernels);
}
#else
void find_kernels(Findings& findings) {
  findings.missing("THIS BUILD HAS NO CUDA KERNELS, though a GPU is present",
                   gpu_remedy("run ./app/quickstart (it brings nvcc), or configure with -DSPARSEREEL_CUDA=ON"));
}
#endif

/// Finds how the GPUs are linked: the links limit how fast GPUs make a video together.
void find_links(Findings& findings, bool usable) {
  const GpuLinks links = find_gpu_links();
  const std::string text = !links.problem.empty() ? "unknown: " + links.problem
                           : links.nvlinks > 0    ? "NVLink, " + std::to_string(links.nvlinks) + " a GPU"
                                                  : "no NVLink";
  findings.add("links", text, "nvlinks", links.problem.empty() ? nlohmann::json(links.nvlinks) : nlohmann::json());
  if (const std::string warning = link_warning(links, links.gpus); !warning.empty()) findings.line("", warning);
  if (!usable) return;
  std::string file;
  const std::string version = models::nccl::version(&file);
  findings.set("nccl", version.empty() ? nlohmann::json() : nlohmann::json(version));
  if (version.empty())
    findings.missing("NCCL, with which GPUs make a video together", gpu_remedy(kQuickstart));
  else
    findings.line("NCCL", version + ", " + file);
}

void find_gpus(Findings& findings) {
  const GpuDriver driver = find_gpu_driver();
  std::string reason;
  const bool usable = models::cuda_available(&reason);
  findings.set("gpus", driver.gpus);
  findings.set("driver_cuda", driver.found ? nlohmann::json(driver.version) : nlohmann::json());
  findings.set("gpu_usable", usable);
  if (driver.gpus.empty()) {
    findings.line("GPU", driver.found ? "none (a driver for CUDA " + driver.version + " is installed)"
                                      : "none (no NVIDIA driver)");
    return;
  }
  for (const std::string& gpu : driver.gpus) findings.line("GPU", gpu + ", driver for CUDA " + driver.version);
  if (usable)
    findings.line("", "usable through libtorch");
  else
    findings.missing("libtorch cannot use the GPU: " + reason, gpu_remedy(kQuickstart));
  find_kernels(findings);
  if (driver.gpus.size() > 1) find_links(findings, usable);
  const std::string why =
      attention::unsupported_reason(attention::Mode::sparse, at::Device(at::kCUDA, 0), at::kBFloat16);
  findings.line("", why.empty() ? "sparse attention runs on it" : "sparse attention does not run on it: " + why);
  findings.set("sparse_on_gpu", why.empty());
  const std::string no_fp8 = usable ? models::why_no_fp8(at::Device(at::kCUDA, 0)) : "libtorch cannot use it";
  findings.line("", no_fp8.empty() ? "--weights fp8 runs on it" : "--weights fp8 does not run on it: " + no_fp8);
  findings.set("fp8_on_gpu", no_fp8.empty());
}

/// Lists every encoder once, and the encoders of each format.
void find_encoders(Findings& findings, const std::vector<FormatEncoders>& formats) {
  nlohmann::json all = nlohmann::json::array(), of_formats = nlohmann::json::object();
  for (const FormatEncoders& format : formats) {
    of_formats[format.ending] = format.found;
    for (const std::string& name : format.found)
      if (std::ranges::find(all, nlohmann::json(name)) == all.end()) all.push_back(name);
  }
  findings.set("encoders", all);
  findings.set("encoders_of", of_formats);
}

/// Shows one line for all formats that have the same encoders, and says which encoders are missing.
void show_encoders(Findings& findings, const std::vector<FormatEncoders>& formats) {
  for (size_t i = 0; i < formats.size();) {
    const FormatEncoders& format = formats[i];
    std::string endings, names;
    for (; i < formats.size() && formats[i].best == format.best; ++i)
      endings += (endings.empty() ? "" : ", ") + formats[i].ending;
    for (const std::string& name : format.found) names += (names.empty() ? "" : ", ") + name;
    findings.line(&format == &formats.front() ? "encoders" : "", endings + ": " + (names.empty() ? "none" : names));
    if (format.found.empty() || format.found.front() != format.best)
      findings.missing(format.best + ", the best encoder for " + endings,
                       "install an FFmpeg built with " + format.best + " (Debian's and Ubuntu's libavcodec has it)");
  }
}

void find_media(Findings& findings) {
  const MediaReport media = media_report();
  findings.set("media", media.libraries);
  find_encoders(findings, media.formats);
  if (media.libraries.empty())
    return findings.missing("an ffmpeg program: no MP4, WebM or GIF can be written, and no JPEG or PNG read",
                            "install ffmpeg, or name one with the variable SPARSEREEL_FFMPEG");
  findings.line("media", media.libraries);
  show_encoders(findings, media.formats);
}

void find_model(Findings& findings) {
  const std::filesystem::path tiny = tiny_model();
  if (std::filesystem::exists(tiny / "model_index.json"))
    return findings.add("tiny model", tiny.string(), "tiny_model", tiny.string());
  findings.set("tiny_model", nullptr);
  findings.missing("the tiny model, " + tiny.string(),
                   "take it from the source tree's assets/tiny, or name a checkpoint with -m");
}

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

Findings examine() {
  Findings findings;
  const unsigned threads = std::thread::hardware_concurrency();
  const uint64_t memory = models::free_memory(at::kCPU);
  findings.add("sparsereel", SPARSEREEL_VERSION, "version", SPARSEREEL_VERSION);
  const Installation installation = find_installation();
  findings.add("installed", installation.kind + " in " + installation.folder.string(), "installation",
               {{"kind", installation.kind}, {"folder", installation.folder.string()}});
  findings.add("built by", kCompiler, "compiler", kCompiler);
  findings.add("libtorch", SPARSEREEL_TORCH_VERSION, "libtorch", SPARSEREEL_TORCH_VERSION);
  findings.add("CUDA", kCudaBuild ? "compiled in" : "not compiled in (CPU build)", "cuda_build", kCudaBuild);
  findings.add("CPU",
               cpu_model() + ", " + counted(threads, "thread") + ", " + at::get_cpu_capability() + " in libtorch",
               "cpu", {{"name", cpu_model()}, {"threads", threads}, {"capability", at::get_cpu_capability()}});
  findings.add("threads", std::to_string(at::get_num_threads()) + " used by default", "threads", at::get_num_threads());
  findings.add("memory", human_bytes(memory) + " free", "free_memory_bytes", memory);
  find_gpus(findings);
  find_media(findings);
  find_model(findings);
  return findings;
}

}  // namespace

void add_doctor(CLI::App& program, CommandLine& /*line*/) {
  CLI::App* command = program.add_subcommand("doctor", "Shows what this machine and build can do, and what is missing");
  command->footer("sparsereel doctor");
  const auto json = std::make_shared<bool>(false);
  OptionGroup(*command, kOtherOptions)
      .flag("--json", *json,
            {.help = "print one JSON object",
             .manual = "Prints the findings as one JSON object. Use it in scripts, or send it with a bug report.",
             .example = "sparsereel doctor --json"});
  command->callback([json] {
    const Findings findings = examine();
    std::cout << (*json ? dump(findings.json(), 2) + "\n" : findings.text());
  });
}

}  // namespace sparsereel::app
