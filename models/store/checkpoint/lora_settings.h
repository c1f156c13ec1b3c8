// Reads a LoRA's settings: its alphas, unless they are tensors, and flags such as use_rslora. No torch.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::models {

/// Returns the adapter_config.json in which PEFT keeps the settings of an adapter_model.safetensors. Empty if `file`
/// has another name, or if there is no adapter_config.json beside it.
std::filesystem::path adapter_config_of(const std::filesystem::path& file);

/// A LoRA's settings. They may be in the file's header (diffusers), or in the adapter_config.json beside the file
/// (PEFT). Some files have nothing but an alpha in the header.
class LoraSettings {
 public:
  /// `metadata` comes from the header of `file`. Also reads adapter_config_of(file). Throws Error naming file and field
  /// if settings are not a JSON object.
  LoraSettings(const std::filesystem::path& file, const std::map<std::string, std::string>& metadata);

  /// Returns the alpha of a layer of this part of the model, or nullopt if no setting gives one. PEFT's alpha_pattern
  /// names layers by regular expressions. An expression must match the layer's whole name, or the rest of the name
  /// after one of its dots; the first expression that matches counts. Throws Error naming file and field if an alpha
  /// does not fit into a float, if an expression cannot be read, or if two alphas for all layers contradict each other.
  std::optional<double> alpha(const std::string& part, const std::string& layer) const;

  /// Returns true for PEFT's use_rslora: alpha is divided by the square root of the rank instead of the rank.
  bool uses_rslora(const std::string& part) const { return flag(part, "use_rslora") != nullptr; }
  /// Returns the file that sets use_dora; empty if no file does.
  std::string file_with_dora(const std::string& part) const;

 private:
  /// A JSON object of settings, and its name in errors.
  struct Config {
    std::string file, where;
    nlohmann::json values;
    bool by_part = false;  // true if keys begin with the part: "transformer.lora_alpha"

    const nlohmann::json* find(const std::string& part, const char* name) const;
    double number(const nlohmann::json& value, const std::string& name) const;
    std::optional<double> alpha_of_pattern(const std::string& part, const std::string& layer) const;
    /// Calls say(key's name, alpha) for each alpha that applies to all layers without a pattern of their own.
    void each_whole_alpha(const std::string& part, const std::function<void(const std::string&, double)>& say) const;
  };

  std::optional<double> whole_alpha(const std::string& part) const;
  const Config* flag(const std::string& part, const char* name) const;

  // All places of settings, in the order in which a setting is looked up in them.
  std::vector<Config> configs_;
  Config arguments_;  // the arguments with which a trainer made its layers; empty if none are in the header
};

}  // namespace sparsereel::models
