// Puts the name that the user typed into the commands of messages.
#include "app/called_program.h"

#include <string_view>

#include "app/job/report.h"

namespace sparsereel::app {
namespace {

std::string& typed_name() {
  static std::string name = "sparsereel";
  return name;
}

std::string with_typed_name(std::string text, std::string_view before) {
  const std::string plain = std::string(before) + "sparsereel ", named = std::string(before) + called_program() + " ";
  for (size_t at = text.find(plain); at != std::string::npos; at = text.find(plain, at + named.size()))
    text.replace(at, plain.size(), named);
  return text;
}

}  // namespace

void remember_call(const char* program) {
  if (program != nullptr && *program != '\0') typed_name() = program;
}

std::string called_program() {
  return shell_quoted(typed_name());
}

std::string as_called(std::string text) {
  return with_typed_name(std::move(text), "'");
}

std::string command_as_called(std::string command) {
  return with_typed_name(std::move(command), "");
}

}  // namespace sparsereel::app
