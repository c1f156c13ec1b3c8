// The options of a command under one heading of its --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

namespace sparsereel::app {

class OptionGroup {
 public:
  OptionGroup(CLI::App& command, std::string heading) : command_(command), heading_(std::move(heading)) {}

  /// `type` is the value's placeholder in --help, or the words that it may be.
  template <typename Value>
  void add(const char* names, Value& value, const std::string& help, const char* type) const {
    command_.add_option(names, value, help)->type_name(type)->group(heading_);
  }
  /// Returns true if the heading says that each option takes a comma list.
  bool holds_lists() const { return heading_.starts_with("Comma lists"); }
  void flag(const char* names, bool& value, const std::string& help) const {
    command_.add_flag(names, value, help)->group(heading_);
  }

 private:
  CLI::App& command_;
  std::string heading_;
};

}  // namespace sparsereel::app
