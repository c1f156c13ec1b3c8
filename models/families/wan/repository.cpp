// Checkpoints in the layout of Wan's authors, or of ComfyUI, and where to find them in diffusers'.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/families/wan/family.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* k13B = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers";
constexpr const char* k14B = "Wan-AI/Wan2.1-T2V-14B-Diffusers";
constexpr const char* kA14B = "Wan-AI/Wan2.2-T2V-A14B-Diffusers";
constexpr const char* k5B = "Wan-AI/Wan2.2-TI2V-5B-Diffusers";

/// The authors' folders hold a config.json of class WanModel, two experts one folder each.
std::string by_config(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder / "high_noise_model", ignored)) return kA14B;
  std::ifstream file(folder / "config.json");
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || config.value("_class_name", nlohmann::json()) != "WanModel") return {};
  const nlohmann::json width = config.value("dim", nlohmann::json());
  return width == 1536 ? k13B : width == 3072 ? k5B : k14B;
}

/// ComfyUI's files are named like wan2.1_t2v_1.3B_fp16.safetensors.
std::string by_name(const fs::path& file) {
  std::string name = file.filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (!name.starts_with("wan2") || (!has("t2v") && !has("ti2v"))) return {};
  if (has("1.3b")) return k13B;
  if (has("14b")) return name.starts_with("wan2.2") ? kA14B : k14B;
  return has("5b") ? k5B : "";
}

}  // namespace

std::string wan_repository(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return by_name(path);
  std::string found = by_config(path);
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (found.empty()) found = by_name(entry.path());
  return found;
}

}  // namespace sparsereel::models
