// Reads a LoRA's alphas where they stand outside of its tensors. No torch.
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

/// The adapter_config.json in which PEFT keeps the settings of the adapter_model.safetensors beside it; empty: `file`
/// is no such file, or there is none beside it.
std::filesystem::path adapter_config_of(const std::filesystem::path& file);

/// Settings as PEFT knows them: in the header as diffusers writes them, in adapter_config_of() the file, or the
/// header's alpha alone.
class LoraSettings {
 public:
  /// `metadata`: of the header of `file`. Reads adapter_config_of() it. Throws Error naming file and field where one of
  /// them is no JSON object.
  LoraSettings(const std::filesystem::path& file, const std::map<std::string, std::string>& metadata);

  /// The alpha of a layer of this part of the model; nothing where it is not said. PEFT's alpha_pattern names layers by
  /// regular expressions: the first one that fits a name, or what follows one of its dots, counts. Throws Error naming
  /// file and field where it is no number that a float holds, where an expression cannot be read, or where two alphas
  /// for layers of no pattern differ.
  std::optional<double> alpha(const std::string& part, const std::string& layer) const;

  /// PEFT's use_rslora: alpha is divided by the root of the rank in place of the rank.
  bool uses_rslora(const std::string& part) const { return flag(part, "use_rslora") != nullptr; }
  /// The file that says use_dora; empty: none does.
  std::string file_with_dora(const std::string& part) const;

 private:
  /// A JSON object of settings, and how errors name it.
  struct Config {
    std::string file, where;
    nlohmann::json values;
    bool by_part = false;  // its keys begin with the part: "transformer.lora_alpha"

    const nlohmann::json* find(const std::string& part, const char* name) const;
    double number(const nlohmann::json& value, const std::string& name) const;
    std::optional<double> alpha_of_pattern(const std::string& part, const std::string& layer) const;
    /// Calls say(name, alpha) for each alpha that holds for layers of no pattern.
    void each_whole_alpha(const std::string& part, const std::function<void(const std::string&, double)>& say) const;
  };

  std::optional<double> whole_alpha(const std::string& part) const;
  const Config* flag(const std::string& part, const char* name) const;

  std::vector<Config> configs_;  // the nearest to the tensors first
  Config arguments_;             // those that a trainer makes its layers with
};

}  // namespace sparsereel::models
