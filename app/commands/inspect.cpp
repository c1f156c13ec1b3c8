// `sparsereel inspect`: reads headers and metadata only; no weights are loaded.
#include "app/commands/inspect.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "app/counted.h"
#include "app/media/video.h"
#include "app/report.h"
#include "hilbert/error.h"
#include "models/checkpoint/safetensors.h"
#include "models/checkpoint/summary.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

void print_component(const models::ComponentSummary& component) {
  std::cout << "  " << component.name << "  " << component.class_name;
  if (component.tensors > 0) {
    std::cout << "  " << component.parameters << " parameters in "
              << counted(static_cast<int64_t>(component.tensors), "tensor") << ", " << human_bytes(component.bytes)
              << " (";
    bool first = true;
    for (const auto& [dtype, parameters] : component.dtypes) {
      std::cout << (first ? "" : ", ") << dtype;
      first = false;
    }
    std::cout << ")";
  }
  std::cout << "\n";
  for (const models::FileSummary& file : component.files)
    std::cout << "    " << file.name << "  " << human_bytes(file.bytes) << "\n";
}

void inspect_checkpoint(const fs::path& path, bool json) {
  Settings settings;
  collect_settings(settings, {{"model", path.string()}}, "");
  const models::VideoSize made_for = {settings.whole("width"), settings.whole("height"), settings.whole("frames")};
  const models::CheckpointSummary summary = models::summarize(path, made_for);
  if (json) {
    std::cout << dump(models::to_json(summary), 2) << "\n";
    return;
  }
  std::cout << summary.path << "\n  " << summary.family << " " << summary.variant << " (" << summary.pipeline_class
            << ")\n  made for " << summary.width << "x" << summary.height << ", " << counted(summary.frames, "frame")
            << "\n  " << summary.parameters() << " parameters, " << human_bytes(summary.bytes()) << "\n";
  for (const models::ComponentSummary& component : summary.components) print_component(component);
  for (const models::MemoryEstimate& memory : summary.memory)
    std::cout << "  needs about " << human_bytes(memory.total()) << " in " << memory.dtype << " (weights "
              << human_bytes(memory.weights) << ", activations " << human_bytes(memory.activations) << ")\n";
}

void inspect_safetensors(const fs::path& path, bool json) {
  const models::SafetensorsFile file(path);
  nlohmann::json tensors = nlohmann::json::array();
  for (const models::TensorEntry& entry : file.header().entries)
    tensors.push_back({{"name", entry.name}, {"dtype", models::name(entry.dtype)}, {"shape", entry.shape}});
  if (json) {
    std::cout << dump({{"path", path.string()}, {"metadata", file.header().metadata}, {"tensors", tensors}}, 2) << "\n";
    return;
  }
  std::cout << path.string() << ": " << counted(static_cast<int64_t>(tensors.size()), "tensor") << "\n";
  for (const nlohmann::json& tensor : tensors)
    std::cout << "  " << tensor["name"].get<std::string>() << "  " << tensor["dtype"].get<std::string>() << " "
              << dump(tensor["shape"]) << "\n";
  for (const auto& [key, value] : file.header().metadata) std::cout << "  " << key << ": " << value << "\n";
}

void inspect_video(const fs::path& path, bool json) {
  const std::string text = read_recipe(path);
  const nlohmann::json recipe = nlohmann::json::parse(text, nullptr, false);
  if (!is_recipe(recipe))
    throw bad_input(path.string() + " carries no recipe",
                    "only videos of this program have one, unless made with --no-metadata");
  if (json) {
    std::cout << dump({{"path", path.string()}, {"recipe", recipe}}, 2) << "\n";
    return;
  }
  std::cout << path.string() << "\n";
  for (const auto& [key, value] : recipe.items())
    std::cout << "  " << key << ": " << (value.is_string() ? value.get<std::string>() : dump(value)) << "\n";
}

}  // namespace

void inspect(const fs::path& path, bool json) {
  const bool checkpoint = fs::exists(path / "model_index.json");  // whatever stands beside it
  if (checkpoint || (fs::is_directory(path) && !fs::exists(recipe_beside(path)))) return inspect_checkpoint(path, json);
  if (path.empty()) throw bad_input("PATH is empty", "name a file or a folder");
  if (!fs::exists(path)) throw bad_file(path, "no such file or folder", "check the path");
  if (path.extension() == ".safetensors") return inspect_safetensors(path, json);
  return inspect_video(path, json);
}

}  // namespace sparsereel::app
