// Identifies parts, LoRAs and other programs' models by the names of their tensors.
#include "app/commands/inspect_file.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/called_program.h"
#include "app/counted.h"
#include "app/jobs/report.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "models/files/config_fields.h"
#include "models/request/distilled.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/part_files.h"
#include "models/store/checkpoint/stored_weights.h"
#include "models/store/configs/config_file.h"
#include "models/store/configs/data_folder.h"
#include "models/store/configs/model_of_files.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

/// All tensors of an unknown file are listed if they are at most this many, as in saved latents.
constexpr size_t kFewTensors = 8;
/// The most bytes that are shown of a metadata value, because some values hold a whole workflow of ComfyUI.
constexpr size_t kMostMetadata = 100;

/// Converts "transformer_blocks.3.attn1.to_q" to "transformer_blocks.*.attn1.to_q".
std::string in_any_block(std::string name) {
  constexpr const char* kDigits = "0123456789";
  const size_t begin = name.find_first_of(kDigits);
  if (begin == std::string::npos) return name;
  return name.replace(begin, std::min(name.find_first_not_of(kDigits, begin), name.size()) - begin, "*");
}

/// Returns the method and the number of steps of a distilled LoRA, if its file name tells them; else null.
nlohmann::json distilled_by_name(const fs::path& path) {
  for (const models::Architecture& model : models::architectures_in(models::data_folder() / "configs"))
    if (const models::Distilled* row = models::distilled_as(model.config, path))
      return {{"name", row->name}, {"steps", row->steps}};
  return {};
}

/// Describes a LoRA and the model that it was made for, as a JSON object. If the LoRA cannot be used, the object has
/// the keys "problem" and "remedy".
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
            {"distilled", distilled_by_name(path)},
            {"layers", lora.layers.size()},
            {"other_tensors", lora.strangers.size()},
            {"ranks", ranks},
            {"scales", scales},
            {"targets", targets}};
  } catch (const Error& error) {
    return {{"problem", error.what()}, {"remedy", as_called(error.remedy())}};
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
    std::cout << "  for the transformer of " << text("expert") << " noise, according to its file name\n";
  if (const nlohmann::json& row = lora["distilled"]; !row.is_null())
    std::cout << "  distilled to " << row["steps"].get<int64_t>() << " steps (" << row["name"].get<std::string>()
              << "), according to its file name: give --distilled " << row["steps"].get<int64_t>() << "\n";
  if (!lora["ranks"].empty()) std::cout << "  rank " << list("ranks") << ", alpha over rank " << list("scales") << "\n";
  if (number("other_tensors") > 0)
    std::cout << "  " << counted(number("other_tensors"), "tensor") << " outside the LoRA\n";
  for (const auto& [target, count] : lora["targets"].items())
    std::cout << "  " << one_line(target) << "  " << count.get<int64_t>() << "\n";
}

/// For each role, the names of the files in configs/ whose models may use the file in that role.
using Parts = std::map<std::string, std::vector<std::string>>;

Parts parts_in(const fs::path& path) {
  Parts parts;
  try {
    for (const auto& [role, configs] : models::models_of_file(models::data_folder() / "configs", path))
      for (const fs::path& config : configs) parts[role].push_back(config.filename().string());
  } catch (const Error&) {
    return {};  // no supported model has such names
  }
  return parts;
}

/// Describes the parts in the file that belong to supported families, but whose sizes no model of configs/ has: "vae of
/// A, in sizes ...". If the file is a part of a model that no family runs, sets `other` to its description.
std::vector<std::string> parts_of_no_config(const fs::path& path, std::string& other) {
  std::vector<std::string> parts;
  try {
    for (const models::FoundPart& part : models::parts_of(path)) {
      if (!part.other_model.empty()) other = "a " + part.role + " of " + part.other_model;
      parts.push_back(part.role + " of " + part.family->name + ", in sizes that no file in configs/ has");
    }
  } catch (const Error&) {
    return {};
  }
  return parts;
}

/// The contents of a file's header, which is read once.
struct Look {
  models::StoredWeights weights;
  uint64_t bytes = 0;
  std::string format = {};
  Parts parts = {};
  std::string other = {};  // description of another program's model, such as "an SDXL checkpoint"; else empty
  std::vector<std::string> other_sizes = {};  // see parts_of_no_config()
  std::map<std::string, std::string> metadata = {};
};

Look look_at(const fs::path& path) {
  Look look{.weights = models::open_weights(path)};
  for (const auto& [name, place] : look.weights.tensors) look.bytes += models::own_bytes(*place.second);
  look.format =
      models::types_of(look.weights.tensors, models::quantized_layers(look.weights.tensors, look.weights.files));
  look.parts = parts_in(path);
  look.other = models::foreign_model(path);
  if (look.parts.empty() && look.other.empty()) look.other_sizes = parts_of_no_config(path, look.other);
  for (const auto& file : look.weights.files) look.metadata.insert(file->metadata().begin(), file->metadata().end());
  return look;
}

/// Returns for example "2515 tensors, 6.4 GiB, F16 2510, F32 5": the number of tensors, their size, and how many
/// tensors each format has.
std::string size_of(const Look& look) {
  return counted(static_cast<int64_t>(look.weights.tensors.size()), "tensor") + ", " + human_bytes(look.bytes) +
         (look.format.empty() ? "" : ", " + look.format);
}

void print_json(const fs::path& path, const Look& look) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const auto& [name, place] : look.weights.tensors)
    tensors.push_back({{"name", name}, {"dtype", models::name(place.second->dtype)}, {"shape", place.second->shape}});
  nlohmann::json summary = {{"path", path.string()},
                            {"bytes", look.bytes},
                            {"format", look.format},
                            {"metadata", look.metadata},
                            {"tensors", tensors}};
  if (models::is_lora(look.weights.tensors)) summary["lora"] = describe_lora(path);
  for (const auto& [role, configs] : look.parts) summary[role + "_of"] = configs;
  if (!look.other.empty()) summary["other_model"] = look.other;
  std::cout << dump(summary, 2) << "\n";
}

void print_parts(const Look& look) {
  for (const auto& [role, configs] : look.parts)
    std::cout << "  " << role << " of " << models::list_of(configs) << "\n";
  if (look.other.empty())
    for (const std::string& part : look.other_sizes) std::cout << "  " << part << "\n";
}

void print_metadata(const Look& look) {
  for (const auto& [key, value] : look.metadata) {
    std::string shown = one_line(value.substr(0, kMostMetadata));
    if (value.size() > kMostMetadata) shown += "... (" + std::to_string(value.size()) + " bytes)";
    std::cout << "  " << one_line(key) << ": " << shown << "\n";
  }
}

void print_tensors(const Look& look) {
  for (const auto& [name, place] : look.weights.tensors)
    std::cout << "  " << one_line(name) << "  " << models::name(place.second->dtype) << " " << dump(place.second->shape)
              << "\n";
}

}  // namespace

void inspect_weights(const fs::path& path, const InspectOptions& options) {
  const Look look = look_at(path);
  if (options.json) return print_json(path, look);
  std::cout << path.string() << ": ";
  if (!look.other.empty()) {
    std::cout << look.other << " (" << size_of(look) << "), which this program does not run: it runs "
              << models::supported_families() << "\n";
    print_parts(look);
    if (options.tensors) print_tensors(look);
    return;
  }
  std::cout << size_of(look) << "\n";
  const bool is_lora = models::is_lora(look.weights.tensors);
  if (is_lora) print_lora(describe_lora(path));
  print_parts(look);
  const bool unknown = !is_lora && look.parts.empty() && look.other_sizes.empty();
  if (unknown) std::cout << "  no model that this program knows\n";
  if (options.tensors || (unknown && look.weights.tensors.size() <= kFewTensors))
    print_tensors(look);
  else
    std::cout << "  --tensors lists its tensors\n";
  print_metadata(look);
}

}  // namespace sparsereel::app
