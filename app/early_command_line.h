// Reads the command line without CLI11 and without allocating memory. Two places need that: CUDA is started before any
// library is ready, and ranks that must stay silent must not print CLI11's errors.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace sparsereel::app {

/// A command of the program.
struct EarlyCommand {
  std::string_view path;  // "bench pipeline"
  bool computes = false;  // true if the command may compute on a GPU
};

/// Every command. A test compares this list, and kEarlyFlags, with the commands and flags that CLI11 knows.
inline constexpr auto kEarlyCommands = std::to_array<EarlyCommand>({
    {.path = "generate", .computes = true},
    {.path = "batch", .computes = true},
    {.path = "serve", .computes = true},
    {.path = "decode", .computes = true},
    {.path = "bench attention", .computes = true},
    {.path = "bench pipeline", .computes = true},
    {.path = "bench quality", .computes = true},
    {.path = "bench plot"},
    {.path = "tune", .computes = true},
    {.path = "inspect"},
    {.path = "config show"},
    {.path = "completion"},
    {.path = "reference"},
    {.path = "doctor"},
});

/// The options that may be given without a value, for all commands together. Every other option takes the next word as
/// its value, whatever that word is.
inline constexpr auto kEarlyFlags = std::to_array<std::string_view>({
    "-h",        "--help",        "--help-all",       "--version",   "--causal",
    "--dry-run", "--dynamic-cfg", "--no-dynamic-cfg", "--json",      "--no-audio",
    "--no-auth", "--no-decode",   "--no-metadata",    "--no-rel-l1", "--offload",
    "--quiet",   "--strict-lora", "--tensors",        "--verbose",
});

/// An option as the user typed it: "--gpus", "-p".
struct EarlyOption {
  std::string_view name;
  std::string_view value;  // empty if the option has none

  /// Returns true if this is the option `other`. Users may write _ in place of - in long names.
  constexpr bool is(std::string_view other) const {
    return std::ranges::equal(name, other, {}, [](char c) { return c == '_' ? '-' : c; });
  }
  constexpr bool is_flag() const {
    return std::ranges::any_of(kEarlyFlags, [this](std::string_view flag) { return is(flag); });
  }
};

/// Reads the options one by one from words that end with a null. Like CLI11, takes the word after an option as its
/// value, even if that word looks like another option.
class EarlyOptions {
 public:
  constexpr explicit EarlyOptions(const char* const* words) : next_(words) {}

  /// Reads the next option into `option`. Returns false if none is left.
  constexpr bool read(EarlyOption& option) {
    while (*next_ != nullptr) {
      const std::string_view word = *next_++;
      if (word == "--") return false;  // only positional arguments follow
      if (word.size() < 2 || word[0] != '-' || (word[1] >= '0' && word[1] <= '9')) continue;
      const bool is_long = word[1] == '-';
      const size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
      option = {.name = word.substr(0, end), .value = word.substr(std::min(end + (is_long ? 1 : 0), word.size()))};
      if (option.value.empty() && !option.is_flag() && *next_ != nullptr) option.value = *next_++;
      return true;
    }
    return false;
  }

 private:
  const char* const* next_;
};

/// The command that the first words name, and the words after it. Both pointers are null if the words name no command.
struct EarlyLine {
  const EarlyCommand* command = nullptr;
  const char* const* words = nullptr;
};

/// Finds the command. `words` are the arguments after the program's name; the list ends with a null.
constexpr EarlyLine read_early(const char* const* words) {
  for (const EarlyCommand& command : kEarlyCommands) {
    std::string_view path = command.path;
    const char* const* word = words;
    while (!path.empty() && *word != nullptr && path.substr(0, path.find(' ')) == *word) {
      path.remove_prefix(std::min(path.find(' '), path.size() - 1) + 1);
      ++word;
    }
    if (path.empty()) return {.command = &command, .words = word};
  }
  return {};
}

}  // namespace sparsereel::app
