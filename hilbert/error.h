// The program's one exception. It lives in the lowest library so that every library can throw it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace sparsereel {

/// What went wrong and what to do about it. `what()` is the cause: it names the file and the field or option at fault.
/// main() prints cause and remedy on stderr, a line each, and exits with `exit_code()`. Elsewhere it is caught only to
/// become a result (a row of a set, a contender of a benchmark) or to undo what was half done.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& cause, std::string remedy)
      : std::runtime_error(cause), exit_code_(exit_code), remedy_(std::move(remedy)) {}

  int exit_code() const { return exit_code_; }
  const std::string& remedy() const { return remedy_; }

 private:
  int exit_code_;
  std::string remedy_;
};

/// The caller's arguments or files are wrong: exit code 2.
inline Error bad_input(const std::string& cause, std::string remedy) {
  return {2, cause, std::move(remedy)};
}

/// Something failed while running (disk full, out of memory, a device error): exit code 1.
inline Error run_failure(const std::string& cause, std::string remedy) {
  return {1, cause, std::move(remedy)};
}

}  // namespace sparsereel
