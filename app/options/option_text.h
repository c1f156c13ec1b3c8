// The texts of an option for --help and `reference`, and in which help the option is listed. Does not use torch.
#pragma once

#include <string>

namespace sparsereel::app {

/// Says in which --help an option is listed. `--help-all` and `reference` list every option.
enum class InHelp {
  everywhere,  // in --help of every command that takes it
  generate,    // in --help of `generate`, `batch` and `config show`
  all,         // only in --help-all and `reference`
  research,    // as `all`, but --help-all lists it under the heading kResearch
};

constexpr const char* kResearch = "Research";
constexpr const char* kOtherOptions = "Options";  // the heading that CLI11 gives to options without a group

struct OptionText {
  std::string help = {};     // one line
  std::string manual = {};   // a paragraph in the output of the command `reference`
  std::string example = {};  // a command line that uses the option; empty if the paragraph needs none
  InHelp in_help = InHelp::everywhere;
};

/// Replaces line breaks and repeated spaces by single spaces.
std::string single_spaced(const std::string& text);

/// CLI11 keeps a single description for an option. packed() puts all texts into one description, with the paragraph
/// single-spaced, and unpacked() separates them again.
std::string packed(const OptionText& text);
OptionText unpacked(const std::string& description);

}  // namespace sparsereel::app
