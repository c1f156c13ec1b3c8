// Adds options to a command under one heading of its --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "app/options/option_text.h"

namespace sparsereel::app {

class OptionGroup {
 public:
  /// `holds_lists` is true if the heading already says that each of its options takes a comma list.
  OptionGroup(CLI::App& command, std::string heading, bool holds_lists = false)
      : command_(command), heading_(std::move(heading)), holds_lists_(holds_lists) {}

  /// `type` is the placeholder of the value in --help, such as "N", or a comma list of the words that the value may be.
  template <typename Value>
  void add(const char* names, Value& value, const OptionText& text, const char* type) const {
    command_.add_option(names, value, packed(text))->type_name(type)->group(heading_of(text));
  }
  bool holds_lists() const { return holds_lists_; }
  void flag(const char* names, bool& value, const OptionText& text) const {
    command_.add_flag(names, value, packed(text))->group(heading_of(text));
  }

 private:
  std::string heading_of(const OptionText& text) const {
    return text.in_help == InHelp::research ? kResearch : heading_;
  }

  CLI::App& command_;
  std::string heading_;
  bool holds_lists_;
};

}  // namespace sparsereel::app
