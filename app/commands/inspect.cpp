// `sparsereel inspect`: reads headers and metadata only; no weights are loaded.
#include "app/commands/inspect.h"

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "app/commands/inspect_folder.h"
#include "app/counted.h"
#include "app/job/report.h"
#include "app/media/video.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "models/checkpoint/family.h"
#include "models/checkpoint/lora.h"
#include "models/checkpoint/summary.h"
#include "models/checkpoint/tensor_file.h"
#include "models/configs/data_folder.h"
#include "models/configs/model_of_files.h"
#include "models/engine/components.h"
#include "models/engine/memory_need.h"
#include "models/files/config_fields.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTextEncoder = "text_encoder";

std::string fp8_option(const models::ComponentSummary& component) {
  return component.name == kTextEncoder ? "--text-weights fp8" : "--weights fp8";
}

void print_component(const models::ComponentSummary& component) {
  std::cout << "  " << component.name << "  " << one_line(component.class_name);
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
    std::cout << "    " << one_line(file.name) << "  " << human_bytes(file.bytes) << "\n";
  if (component.fp8_bytes > 0)
    std::cout << "    " << human_bytes(component.fp8_bytes) << " in memory with " << fp8_option(component) << "\n";
}

/// What the components with layers for 8 bits take in a run in bf16.
std::map<std::string, uint64_t> fp8_bytes(const models::Checkpoint& folder) {
  std::vector<std::string> roles = {kTextEncoder};
  for (const models::ExpertSpec& expert : models::describe(folder).experts) roles.push_back(expert.role);
  std::map<std::string, uint64_t> bytes;
  for (const std::string& role : roles)
    if (models::has_fp8_layers(folder, role))
      bytes[role] = models::likely_weight_bytes(folder, role, {at::kBFloat16, /*in_fp8=*/true});
  return bytes;
}

/// " --weights fp8 --text-weights fp8": those that change something.
std::string fp8_options(const models::CheckpointSummary& summary) {
  std::set<std::string, std::greater<>> options;
  for (const models::ComponentSummary& component : summary.components)
    if (component.fp8_bytes > 0) options.insert(fp8_option(component));
  std::string text;
  for (const std::string& option : options) text += " " + option;
  return text;
}

/// `inventory`: of the folder that it was found in; null: it is what the user named.
void inspect_checkpoint(const fs::path& path, bool json, const FolderInventory* inventory = nullptr) {
  Settings settings;
  collect_settings(settings, {{"model", path.string()}}, "");
  const models::VideoSize made_for = {settings.whole("width"), settings.whole("height"), settings.whole("frames")};
  const models::Checkpoint folder = open_model(settings);
  models::CheckpointSummary summary = models::summarize(folder, made_for, fp8_bytes(folder));
  const models::ModelSpec spec = models::describe(folder);
  summary.memory =
      models::likely_memory(folder, spec, models::latent_size(spec, summary.frames, summary.height, summary.width));
  const std::vector<models::PartFile> files = models::part_files(folder);
  if (json) {
    nlohmann::json content = models::to_json(summary);
    if (!files.empty()) content["files"] = models::shown(files);
    if (inventory != nullptr) content.update(inventory_report(*inventory));
    std::cout << dump(content, 2) << "\n";
    return;
  }
  std::cout << summary.path << "\n  " << summary.family << " " << summary.variant << " (" << summary.pipeline_class
            << ")\n  made for " << summary.width << "x" << summary.height << ", " << counted(summary.frames, "frame")
            << "\n  " << summary.parameters() << " parameters, " << human_bytes(summary.bytes()) << "\n";
  for (const models::ComponentSummary& component : summary.components) print_component(component);
  print_part_files(files, "  ");
  for (const models::MemoryEstimate& memory : summary.memory) {
    std::cout << "  needs about " << human_bytes(memory.total())
              << (memory.dtype == "fp8" ? " with" + fp8_options(summary) : " in " + memory.dtype) << " (weights "
              << human_bytes(memory.weights) << ", activations " << human_bytes(memory.activations) << ", the program "
              << human_bytes(memory.process) << ")";
    for (const auto& [gpus, bytes] : memory.of_each)
      std::cout << (gpus == memory.of_each.front().first ? ", each of " : ", of ") << gpus << " GPUs "
                << human_bytes(bytes);
    std::cout << "\n";
  }
  if (inventory != nullptr) print_rest_of_inventory(*inventory);
}

/// A folder of one model is that model; of others, all that is there is listed.
void inspect_folder(const fs::path& path, bool json) {
  const FolderInventory inventory = take_inventory(path);
  if (inventory.is_empty()) return inspect_checkpoint(path, json);  // says what it lacks
  if (inventory.only_model() != nullptr) return inspect_checkpoint(path, json, &inventory);
  if (json)
    std::cout << dump(inventory_report(inventory), 2) << "\n";
  else
    print_inventory(inventory);
}

/// "transformer_blocks.3.attn1.to_q" -> "transformer_blocks.*.attn1.to_q"
std::string in_any_block(std::string name) {
  constexpr const char* kDigits = "0123456789";
  const size_t begin = name.find_first_of(kDigits);
  if (begin == std::string::npos) return name;
  return name.replace(begin, std::min(name.find_first_not_of(kDigits, begin), name.size()) - begin, "*");
}

bool may_be_lora(const models::TensorFile& file) {
  return std::ranges::any_of(file.entries(), [](const models::TensorEntry& entry) {
    const auto has = [&](const char* part) { return entry.name.find(part) != std::string::npos; };
    return has("lora_") || has(".diff") || has("hada_w") || has("lokr_w");
  });
}

/// What a LoRA is for; "problem" in place of it where it cannot be used.
nlohmann::json describe_lora(const fs::path& path) {
  try {
    const models::LoraFile lora = models::read_lora(path);
    const models::LoraOrigin origin = models::origin_of(lora);
    std::set<int64_t> ranks;
    std::set<double> scales;
    std::map<std::string, int64_t> targets;
    for (const models::LoraLayer& layer : lora.layers) {
      if (layer.down != nullptr) {
        ranks.insert(layer.rank());
        scales.insert(layer.strength);
      }
      ++targets[(layer.part.empty() ? "" : layer.part + ".") + in_any_block(layer.name)];
    }
    return {{"family", origin.family == nullptr ? "" : origin.family->name},
            {"naming", origin.naming},
            {"width", origin.width},
            {"blocks", origin.blocks},
            {"expert", origin.expert},
            {"layers", lora.layers.size()},
            {"ranks", ranks},
            {"scales", scales},
            {"targets", targets}};
  } catch (const Error& error) {
    return {{"problem", error.what()}, {"remedy", error.remedy()}};
  }
}

void print_lora(const nlohmann::json& lora) {
  if (lora.contains("problem")) {
    std::cout << "  LoRA that cannot be used: " << one_line(lora["problem"].get<std::string>()) << "\n";
    return;
  }
  const auto text = [&](const char* key) { return lora[key].get<std::string>(); };
  const auto number = [&](const char* key) { return lora[key].get<int64_t>(); };
  const auto list = [&](const char* key) {
    const std::string all = dump(lora[key]);
    return all.substr(1, all.size() - 2);
  };
  std::cout << "  LoRA of " << counted(number("layers"), "layer") << " for "
            << (text("family").empty() ? "no model that is known" : text("family")) << ", " << text("naming")
            << " naming\n";
  if (number("width") > 0)
    std::cout << "  made for inner width " << number("width") << " and " << counted(number("blocks"), "block") << "\n";
  if (!text("expert").empty())
    std::cout << "  by its file name for the transformer of " << text("expert") << " noise\n";
  if (!lora["ranks"].empty()) std::cout << "  rank " << list("ranks") << ", alpha over rank " << list("scales") << "\n";
  for (const auto& [target, count] : lora["targets"].items())
    std::cout << "  " << one_line(target) << "  " << count.get<int64_t>() << "\n";
}

/// By role the configs of the known models of which the file may be that part: "some-model.yaml".
std::map<std::string, std::vector<std::string>> parts_in(const fs::path& path) {
  std::map<std::string, std::vector<std::string>> parts;
  try {
    for (const auto& [role, configs] : models::models_of_file(models::data_folder() / "configs", path))
      for (const fs::path& config : configs) parts[role].push_back(config.filename().string());
  } catch (const Error&) {
    return {};  // names that no model's file has
  }
  return parts;
}

void inspect_tensors(const fs::path& path, bool json) {
  const models::TensorFile file(path);
  const std::map<std::string, std::vector<std::string>> parts = parts_in(path);
  nlohmann::json tensors = nlohmann::json::array();
  for (const models::TensorEntry& entry : file.entries())
    tensors.push_back({{"name", entry.name}, {"dtype", models::name(entry.dtype)}, {"shape", entry.shape}});
  if (json) {
    nlohmann::json summary = {{"path", path.string()}, {"metadata", file.metadata()}, {"tensors", tensors}};
    if (may_be_lora(file)) summary["lora"] = describe_lora(path);
    for (const auto& [role, configs] : parts) summary[role + "_of"] = configs;
    std::cout << dump(summary, 2) << "\n";
    return;
  }
  std::cout << path.string() << ": " << counted(static_cast<int64_t>(tensors.size()), "tensor") << "\n";
  if (may_be_lora(file)) print_lora(describe_lora(path));
  for (const auto& [role, configs] : parts) std::cout << "  " << role << " of " << models::list_of(configs) << "\n";
  for (const nlohmann::json& tensor : tensors)
    std::cout << "  " << one_line(tensor["name"].get<std::string>()) << "  " << tensor["dtype"].get<std::string>()
              << " " << dump(tensor["shape"]) << "\n";
  for (const auto& [key, value] : file.metadata())
    std::cout << "  " << one_line(key) << ": " << one_line(value) << "\n";
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
    std::cout << "  " << one_line(key) << ": " << one_line(value.is_string() ? value.get<std::string>() : dump(value))
              << "\n";
}

}  // namespace

void inspect(const fs::path& path, bool json) {
  if (fs::exists(path / "model_index.json")) return inspect_checkpoint(path, json);  // whatever stands beside it
  if (fs::is_directory(path) && !fs::exists(recipe_beside(path))) return inspect_folder(path, json);
  if (path.empty()) throw bad_input("PATH is empty", "name a file or a folder");
  if (!fs::exists(path)) throw bad_file(path, "no such file or folder", "check the path");
  for (const char* extension : {".safetensors", ".gguf", ".pth", ".pt"})
    if (path.extension() == extension) return inspect_tensors(path, json);
  return inspect_video(path, json);
}

}  // namespace sparsereel::app
