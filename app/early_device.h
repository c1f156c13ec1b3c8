// The GPU that a command will most likely compute on, by its command line and the environment. Allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "app/early_command_line.h"
#include "app/ranks/variables.h"

namespace sparsereel::app {

/// In place of a GPU's number: start nothing, or only the driver, since a file or a rank's place decides.
inline constexpr int kNoDevice = -1, kDriverAlone = -2;

/// Profilers hear the end of a process (main.cpp), which must not come while the driver starts.
inline constexpr std::string_view kProfilerVariable = "CUDA_INJECTION64_PATH";

/// Options with which a command computes nothing.
inline constexpr auto kNoWork = std::to_array<std::string_view>({"-h", "--help", "--version", "--dry-run", "--status"});
/// Options that may name another device than the command line does.
inline constexpr auto kElsewhere = std::to_array<std::string_view>({"--config", "--gpus"});

/// The variable's value; null data where it is not in `environment`, which a null ends.
constexpr std::string_view early_variable(const char* const* environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) return entry.substr(name.size() + 1);
  }
  return {};
}

inline int device_number(std::string_view text) {
  if (text == "auto" || text == "cuda") return 0;
  int number = kNoDevice;
  if (text.starts_with("cuda:")) std::from_chars(text.data() + 5, text.data() + text.size(), number);
  return number;
}

constexpr bool is_one_of(const EarlyOption& option, const auto& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return option.is(name); });
}

/// The GPU that the words behind the command name, which the last --device does; `otherwise` where they do not.
inline int device_in(const char* const* words, int otherwise) {
  int device = otherwise;
  bool is_named = false;
  EarlyOption option;
  for (EarlyOptions options(words); options.read(option);) {
    if (is_one_of(option, kNoWork)) return kNoDevice;
    if (option.is("--device")) {
      is_named = true;
      device = device_number(option.value);
    } else if (!is_named && is_one_of(option, kElsewhere)) {
      device = kDriverAlone;
    }
  }
  return device;
}

/// `arguments`: with the program's name. A null ends them and the environment.
inline int likely_device(const char* const* arguments, const char* const* environment) {
  const auto value_of = [&](std::string_view name) { return early_variable(environment, name); };
  if (value_of(kProfilerVariable).data() != nullptr) return kNoDevice;
  if (const auto own = value_of(kStartedRankDevice); own.data() != nullptr) return device_number(own);
  if (arguments[0] == nullptr) return kNoDevice;
  const EarlyLine line = read_early(arguments + 1);
  if (line.command == nullptr || !line.command->computes) return kNoDevice;
  const bool is_launched = std::ranges::any_of(
      kLaunchers, [&](const Launcher& launcher) { return value_of(launcher.rank).data() != nullptr; });
  return device_in(line.words, is_launched ? kDriverAlone : 0);
}

}  // namespace sparsereel::app
