// The command line, as far as it must be known before CLI11 reads it: by the early start of CUDA, which comes before
// any library is ready, and by ranks that must stay silent about CLI11's errors too. Allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace sparsereel::app {

/// A command, and whether it computes on the GPU that it is given.
struct EarlyCommand {
  std::string_view path;  // "bench pipeline"
  bool computes = false;
};

/// Every command. A test holds this and the flags below against what CLI11 parses.
inline constexpr auto kEarlyCommands = std::to_array<EarlyCommand>({
    {.path = "generate", .computes = true},
    {.path = "batch", .computes = true},
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

/// The options of any command that can stand without a value. Every other option takes the word behind it, whatever
/// that is.
inline constexpr auto kEarlyFlags = std::to_array<std::string_view>({
    "-h",
    "--help",
    "--version",
    "--causal",
    "--dry-run",
    "--dynamic-cfg",
    "--no-dynamic-cfg",
    "--json",
    "--no-decode",
    "--no-metadata",
    "--no-rel-l1",
    "--offload",
    "--quiet",
    "--strict-lora",
    "--tensors",
    "--verbose",
});

/// An option as the user typed it: "--gpus", "-p".
struct EarlyOption {
  std::string_view name;
  std::string_view value;  // empty where it has none

  /// Long names may be written with _ for -.
  constexpr bool is(std::string_view other) const {
    return std::ranges::equal(name, other, {}, [](char c) { return c == '_' ? '-' : c; });
  }
  constexpr bool is_flag() const {
    return std::ranges::any_of(kEarlyFlags, [this](std::string_view flag) { return is(flag); });
  }
};

/// The options among words, which a null ends, one by one and as CLI11 takes them: what follows an option is its value
/// even where it looks like another option.
class EarlyOptions {
 public:
  constexpr explicit EarlyOptions(const char* const* words) : next_(words) {}

  /// Returns false where no option is left.
  constexpr bool read(EarlyOption& option) {
    while (*next_ != nullptr) {
      const std::string_view word = *next_++;
      if (word == "--") return false;  // what follows are no options
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

/// The command that the first words name, and the words behind it; null where they name none.
struct EarlyLine {
  const EarlyCommand* command = nullptr;
  const char* const* words = nullptr;
};

/// `words`: those behind the program's name, which a null ends.
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
