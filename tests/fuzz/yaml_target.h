// The target of fuzz_yaml: parses arbitrary bytes as a --config file and as a file in configs/. Both parsers must
// accept the bytes or throw an Error that names the file.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "app/options/option_table.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::test {

inline void fuzz_yaml(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto attempt = [](const auto& parse) {
    try {
      parse();
    } catch (const Error& error) {
      if (std::string(error.what()).find("fuzz.yaml") == std::string::npos || error.remedy().empty()) std::abort();
    }
  };
  attempt([&] {
    const models::YamlOptions options = models::parse_config(text, "fuzz.yaml");
    if (options.values.size() != options.places.size()) std::abort();
    app::Settings settings;
    settings.add(app::Source::config_file, options.values, "fuzz.yaml", options.places);
  });
  attempt([&] {
    models::parse_architecture(text, "fuzz.yaml")
        .components.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
}

}  // namespace sparsereel::test
