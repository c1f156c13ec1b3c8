// Reads a LoRA's alphas that are not stored as tensors. No torch.
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
/// has another name or there is no adapter_config.json.
std::filesystem::path adapter_config_of(const std::filesystem::path& file);

/// A LoRA's settings: in the header as diffusers writes them, in the adapter_config.json beside the file (PEFT), or
/// only an alpha in the header.
class LoraSettings {
 public:
  /// `metadata` is from the header of `file`. Also reads adapter_config_of(). Throws Error naming file and field if one
  /// of them is no JSON object.
  LoraSettings(const std::filesystem::path& file, const std::map<std::string, std::string>& metadata);

  /// Returns the alpha of a layer of this part of the model, or nothing if no setting gives one. PEFT's alpha_pattern
  /// names layers by regular expressions. The first expression counts that matches the layer's name, or the rest of the
  /// name after one of its dots. Throws Error naming file and field for an alpha that no float holds, an unreadable
  /// expression, and contradicting alphas for layers without a pattern.
  std::optional<double> alpha(const std::string& part, const std::string& layer) const;

  /// Returns true for PEFT's use_rslora: alpha is divided by the square root of the rank instead of the rank.
  bool uses_rslora(const std::string& part) const { return flag(part, "use_rslora") != nullptr; }
  /// Returns the file that says use_dora; empty if no file says it.
  std::string file_with_dora(const std::string& part) const;

 private:
  /// A JSON object of settings, and its name in errors.
  struct Config {
    std::string file, where;
    nlohmann::json values;
    bool by_part = false;  // keys begin with the part: "transformer.lora_alpha"

    const nlohmann::json* find(const std::string& part, const char* name) const;
    double number(const nlohmann::json& value, const std::string& name) const;
    std::optional<double> alpha_of_pattern(const std::string& part, const std::string& layer) const;
    /// Calls say(name, alpha) for each alpha for layers without a pattern.
    void each_whole_alpha(const std::string& part, const std::function<void(const std::string&, double)>& say) const;
  };

  std::optional<double> whole_alpha(const std::string& part) const;
  const Config* flag(const std::string& part, const char* name) const;

  std::vector<Config> configs_;  // those closest to the tensors first
  Config arguments_;             // the arguments from which a trainer made its layers
};

}  // namespace sparsereel::models
