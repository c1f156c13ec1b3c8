// Guesses from the command line and the environment which GPU a command will compute on. Allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "app/early_command_line.h"
#include "app/ranks/variables.h"

namespace sparsereel::app {

/// Values in place of a GPU's number. kNoDevice: start nothing. kDriverAlone: start only the driver, because the GPU is
/// not known yet: it depends on the file of --config, on --gpus, or on the rank of this process.
inline constexpr int kNoDevice = -1, kDriverAlone = -2;

/// The environment variable that profilers set. With a profiler, the process exits normally, so that the profiler can
/// write its report (main.cpp). Such an exit must not happen while a thread still starts the driver, so nothing is
/// started early.
inline constexpr std::string_view kProfilerVariable = "CUDA_INJECTION64_PATH";

/// A command with one of these options computes nothing.
inline constexpr auto kNoWork =
    std::to_array<std::string_view>({"-h", "--help", "--help-all", "--version", "--dry-run", "--status"});
/// Without --device, these options may decide which GPU is used.
inline constexpr auto kElsewhere = std::to_array<std::string_view>({"--config", "--gpus"});

/// Returns the value of the variable `name`; data() is null if the variable is not in `environment`. The list ends with
/// a null.
constexpr std::string_view early_variable(const char* const* environment, std::string_view name) {
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) return entry.substr(name.size() + 1);
  }
  return {};
}

/// Returns the number in "cuda:1", 0 for "auto" and "cuda", and kNoDevice for any other text.
inline int device_number(std::string_view text) {
  if (text == "auto" || text == "cuda") return 0;
  int number = kNoDevice;
  if (text.starts_with("cuda:")) std::from_chars(text.data() + 5, text.data() + text.size(), number);
  return number;
}

constexpr bool is_one_of(const EarlyOption& option, const auto& names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return option.is(name); });
}

/// Returns the number of the GPU that the last --device among the words names. Without --device, returns kDriverAlone
/// if an option of kElsewhere is given, or else `otherwise`. Returns kNoDevice if an option of kNoWork is given.
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

/// Returns the number of the GPU that the command will probably use, or kNoDevice or kDriverAlone. `arguments` begins
/// with the program's name; both lists end with a null.
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
