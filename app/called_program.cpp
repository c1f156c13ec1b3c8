// Replaces the program's name in messages by the one that the user typed.
#include "app/called_program.h"

#include <string_view>

#include "app/jobs/report.h"

namespace sparsereel::app {
namespace {

struct Invocation {
  std::string name = "sparsereel";
  std::vector<std::string> words = {};
};

Invocation& call() {
  static Invocation the_call;
  return the_call;
}

std::string with_typed_name(std::string text, std::string_view before) {
  const std::string plain = std::string(before) + "sparsereel ", named = std::string(before) + called_program() + " ";
  for (size_t at = text.find(plain); at != std::string::npos; at = text.find(plain, at + named.size()))
    text.replace(at, plain.size(), named);
  return text;
}

}  // namespace

void remember_call(int argc, const char* const* argv) {
  if (argc < 1) return;
  if (*argv[0] != '\0') call().name = argv[0];
  call().words.assign(argv + 1, argv + argc);
}

const std::vector<std::string>& called_words() {
  return call().words;
}

std::string called_program() {
  return shell_quoted(call().name);
}

std::string as_called(std::string text) {
  return with_typed_name(std::move(text), "'");
}

std::string command_as_called(std::string command) {
  return with_typed_name(std::move(command), "");
}

}  // namespace sparsereel::app
