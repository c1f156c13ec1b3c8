// `sparsereel inspect`: reads headers and metadata, never weights.
#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "app/commands/commands.h"
#include "app/commands/inspect_file.h"
#include "app/commands/inspect_folder.h"
#include "app/counted.h"
#include "app/jobs/report.h"
#include "app/media/video.h"
#include "app/options/option_group.h"
#include "app/options/published_models.h"
#include "app/options/recipe.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/engine/components.h"
#include "models/engine/memory_facts.h"
#include "models/engine/memory_need.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/summary.h"

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
  } else if (component.parameters > 0) {
    std::cout << "  " << component.parameters << " parameters, " << human_bytes(component.bytes) << " in 16 bits";
  }
  std::cout << "\n";
  for (const models::FileSummary& file : component.files)
    std::cout << "    " << one_line(file.name) << "  " << human_bytes(file.bytes) << "\n";
  if (component.fp8_bytes > 0)
    std::cout << "    " << human_bytes(component.fp8_bytes) << " in memory with " << fp8_option(component)
              << " or int8\n";
}

/// Returns, by role, the bytes in memory of each component that can have 8-bit layers, for a run in bf16 with fp8
/// weights.
std::map<std::string, uint64_t> fp8_bytes(const models::Checkpoint& folder) {
  std::vector<std::string> roles = {kTextEncoder};
  for (const models::ExpertSpec& expert : models::describe(folder).experts) roles.push_back(expert.role);
  std::map<std::string, uint64_t> bytes;
  for (const std::string& role : roles)
    if (models::has_fp8_layers(folder, role))
      bytes[role] = models::likely_weight_bytes(folder, role, {at::kBFloat16, /*in_fp8=*/true});
  return bytes;
}

/// Returns the options that save memory: " --weights fp8 --text-weights fp8".
std::string fp8_options(const models::CheckpointSummary& summary) {
  std::set<std::string, std::greater<>> options;
  for (const models::ComponentSummary& component : summary.components)
    if (component.fp8_bytes > 0) options.insert(fp8_option(component));
  std::string text;
  for (const std::string& option : options) text += " " + option;
  return text;
}

/// Fills in the numbers of parameters, and the bytes in 16 bits, of a model that has no files.
void count_weights(models::CheckpointSummary& summary, const models::Checkpoint& checkpoint) {
  for (models::ComponentSummary& component : summary.components) {
    if (!models::has_weights(component.name)) continue;
    component.parameters = component.name == "vae"
                               ? models::vae_weight_count(checkpoint)
                               : static_cast<uint64_t>(models::weight_count(checkpoint, component.name));
    component.bytes = 2 * component.parameters;
  }
}

/// Returns the defaults that a file of configs/ gives its model, by option key.
nlohmann::json defaults_of(const Settings& settings) {
  nlohmann::json defaults = nlohmann::json::object();
  for (const char* key :
       {"size", "width", "height", "frames", "fps", "steps", "cfg_scale", "cfg_scale_2", "flow_shift"})
    if (const auto value = settings.text(key)) defaults[key] = *value;
  return defaults;
}

nlohmann::json published_as(const models::Architecture& architecture) {
  nlohmann::json all = nlohmann::json::array();
  const std::vector<DownloadAdvice> advice = download_advice(architecture);
  for (size_t i = 0; i < advice.size(); ++i) {
    const models::Published& published = architecture.published[i];
    all.push_back({{"repository", published.names.front()}, {"commands", advice[i].commands}});
    if (!published.holds.empty()) all.back()["holds"] = published.holds;
    if (published.gigabytes) all.back()["gigabytes"] = *published.gigabytes;
  }
  return all;
}

void print_downloads(const models::Architecture& architecture, const Settings& settings) {
  std::cout << "  by default";
  const nlohmann::json defaults = defaults_of(settings);
  for (const auto& [key, value] : defaults.items())
    std::cout << " " << option_name(key) << " " << value.get<std::string>();
  std::cout << "\n";
  for (const DownloadAdvice& advice : download_advice(architecture)) {
    std::cout << "  to download" << (advice.title.empty() ? "" : " (" + advice.title + ")") << "\n";
    for (const std::string& command : advice.commands) std::cout << "    " << command << "\n";
  }
}

/// Returns which weights would stay on a GPU of `max_vram` GiB, or on this machine's GPU if `max_vram` is 0. Returns
/// nothing without a GPU.
std::optional<models::MemoryPlan> plan_on_gpu(const models::Checkpoint& folder, const models::ModelSpec& spec,
                                              const models::LatentSize& size, double max_vram) {
  const bool has_gpu = max_vram == 0 && models::cuda_available();
  if (max_vram == 0 && !has_gpu) return {};
  try {
    return models::plan_for_defaults(folder, spec, size, max_vram, has_gpu ? at::Device(at::kCUDA, 0) : at::kCPU);
  } catch (const c10::Error&) {  // the GPU is full, or belongs to another process
    return {};
  }
}

/// Prints what a model holds. `architecture` is null unless `path` is the YAML of a model. `inventory` describes the
/// folder in which the model was found; it is null if the user named the model itself.
void inspect_model(const fs::path& path, const InspectOptions& options,
                   const models::Architecture* architecture = nullptr, const FolderInventory* inventory = nullptr) {
  Settings settings;
  collect_settings(settings, {{architecture == nullptr ? "model" : "random_weights", path.string()}}, "");
  const models::VideoSize made_for = {settings.whole("width"), settings.whole("height"), settings.whole("frames")};
  const models::Checkpoint folder = open_model(settings);
  models::CheckpointSummary summary = models::summarize(folder, made_for, fp8_bytes(folder));
  if (architecture != nullptr) count_weights(summary, folder);
  const models::ModelSpec spec = models::describe(folder);
  const models::LatentSize size = models::latent_size(spec, summary.frames, summary.height, summary.width);
  summary.memory = models::likely_memory(folder, spec, size);
  const std::optional<models::MemoryPlan> plan = plan_on_gpu(folder, spec, size, options.max_vram);
  const std::vector<models::PartFile> files = models::part_files(folder);
  if (options.json) {
    nlohmann::json content = models::to_json(summary);
    if (plan) content["plan"] = plan_report(*plan);
    if (!files.empty()) content["files"] = models::shown(files);
    if (architecture != nullptr) content["defaults"] = defaults_of(settings);
    if (architecture != nullptr) content["published"] = published_as(*architecture);
    if (inventory != nullptr) content.update(inventory_report(*inventory));
    std::cout << dump(content, 2) << "\n";
    return;
  }
  std::cout << summary.path << "\n  " << summary.family << " " << summary.variant << " (" << summary.pipeline_class
            << ")\n  made for " << summary.width << "x" << summary.height << ", " << counted(summary.frames, "frame")
            << (summary.license.empty() ? "" : "\n  ") << summary.license << "\n  " << summary.parameters()
            << " parameters, " << human_bytes(summary.bytes()) << "\n";
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
  if (plan) std::cout << "  on the GPU: " << models::sentence(*plan) << "\n";
  if (architecture != nullptr) print_downloads(*architecture, settings);
  if (inventory != nullptr) print_rest_of_inventory(*inventory);
}

/// Prints the model if the folder holds exactly one, else lists everything in the folder.
void inspect_folder(const fs::path& path, const InspectOptions& options) {
  const FolderInventory inventory = take_inventory(path);
  if (inventory.is_empty()) return inspect_model(path, options);  // its error says what is missing
  if (inventory.only_model() != nullptr) return inspect_model(path, options, nullptr, &inventory);
  if (options.json)
    std::cout << dump(inventory_report(inventory), 2) << "\n";
  else
    print_inventory(inventory);
}

void inspect_video(const fs::path& path, bool json) {
  const std::string text = read_recipe(path);
  const nlohmann::json recipe = models::parse_json_if_valid(text);
  if (!is_recipe(recipe)) throw bad_input(path.string() + " carries no recipe", kNoRecipeRemedy);
  if (json) {
    std::cout << dump({{"path", path.string()}, {"recipe", recipe}}, 2) << "\n";
    return;
  }
  std::cout << path.string() << "\n";
  for (const auto& [key, value] : recipe.items())
    std::cout << "  " << one_line(key) << ": " << one_line(value.is_string() ? value.get<std::string>() : dump(value))
              << "\n";
}

/// Prints what the path holds to stdout. Throws Error if the path cannot be inspected.
void inspect(const fs::path& path, const InspectOptions& options) {
  if (fs::exists(path / "model_index.json")) return inspect_model(path, options);  // even if it holds other models
  if (fs::is_directory(path) && !fs::exists(recipe_beside(path))) return inspect_folder(path, options);
  if (path.empty()) throw bad_input("the argument PATH is an empty text", "name a file or a folder");
  if (!fs::exists(path)) throw missing_model(path.string(), bad_file(path, "no such file or folder", "check the path"));
  if (path.extension() == ".yaml" || path.extension() == ".yml") {
    const models::Architecture architecture = models::read_architecture(path);
    return inspect_model(path, options, &architecture);
  }
  for (const char* ending : {".safetensors", ".gguf", ".pth", ".pt", ".bin", ".ckpt", ".index.json"})
    if (path.filename().string().ends_with(ending)) return inspect_weights(path, options);
  if (!may_hold_recipe(path))
    throw bad_input(path.string() + " does not have the name of a model's or a video's file",
                    "name a model's folder or file, a .yaml of configs/, or a video that this program made");
  return inspect_video(path, options.json);
}

}  // namespace

void add_inspect(CLI::App& program, CommandLine& /*line*/) {
  CLI::App* command = program.add_subcommand("inspect", "Shows what a model, a file of weights or a video holds");
  command->footer("sparsereel inspect clip.mp4");
  const auto path = std::make_shared<std::string>();
  const auto options = std::make_shared<InspectOptions>();
  constexpr const char* kManual = R"(Names what to look at. For a model or a .yaml of configs/, shows the parts and
      the memory that they need. For a folder, shows the models and LoRAs in it, what each lacks, and the command that
      uses it. For a file of weights, shows what it is for. For a video, a folder of PNGs or a .json, shows the
      recipe.)";
  command
      ->add_option("PATH", *path,
                   packed({.help = "a model, folder, file of weights, .yaml of configs/, video or .json recipe",
                           .manual = kManual,
                           .example = "sparsereel inspect ComfyUI"}))
      ->type_name("FILE")
      ->required();
  const OptionGroup group(*command, kOtherOptions);
  group.flag("--json", options->json,
             {.help = "print one JSON object",
              .manual = "Prints what was found as one JSON object, for scripts. The object for a file of weights lists "
                        "every tensor.",
              .example = "sparsereel inspect clip.mp4 --json"});
  group.flag("--tensors", options->tensors,
             {.help = "list each tensor of a file",
              .manual = "Lists the name, shape and type of each tensor of a file of weights. Nothing else changes.",
              .example = "sparsereel inspect style.safetensors --tensors"});
  const auto gibibytes = std::make_shared<std::optional<double>>();
  group.add(
      "--max-vram", *gibibytes,
      {.help = "show where weights would stay on a GPU of X GiB",
       .manual = R"(Shows how many blocks of a model's transformer would stay on a GPU of this size, in GiB, and how
           many would be copied to it in turn. Without this option, inspect uses the GPU of this machine, if there is
           one.)",
       .example = "sparsereel inspect MODEL --max-vram 12"},
      "X");
  command->callback([path, options, gibibytes] {
    if (*gibibytes && !(**gibibytes > 0 && **gibibytes <= 1e6))
      throw bad_option("max_vram", exact_text(**gibibytes) + " is not a number above 0 and at most 1000000",
                       "give the GiB of the GPU, such as 12");
    options->max_vram = gibibytes->value_or(0);
    inspect(*path, *options);
  });
}

}  // namespace sparsereel::app
