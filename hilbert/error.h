// The program's one exception. It lives in the lowest library so that every library can throw it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace sparsereel {

/// What an error is about, where that can be told: a field of the request, by its key in YAML files and recipes
/// ("frames"), or a file by its path. Who gave either knows by which option; messages are for people only.
struct ErrorSubject {
  std::string field = {}, file = {};
};

/// What went wrong and what to do about it. `what()` is the cause: it names the file, or begins with the field at
/// fault. main() prints cause and remedy on stderr, a line each, and exits with `exit_code()`. Elsewhere it is caught
/// only to become a result (a row of a set, a contender of a benchmark) or to undo what was half done.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& cause, std::string remedy, ErrorSubject subject = {})
      : std::runtime_error(subject.field.empty() ? cause : subject.field + " " + cause),
        exit_code_(exit_code),
        remedy_(std::move(remedy)),
        subject_(std::move(subject)) {}

  int exit_code() const { return exit_code_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& field() const { return subject_.field; }
  const std::string& file() const { return subject_.file; }
  /// The cause without the field's name: "8 is impossible".
  std::string problem() const { return field().empty() ? what() : what() + field().size() + 1; }

 private:
  int exit_code_;
  std::string remedy_;
  ErrorSubject subject_;
};

/// The caller's arguments or files are wrong: exit code 2.
inline Error bad_input(const std::string& cause, std::string remedy) {
  return {2, cause, std::move(remedy)};
}

/// The same of one field of the request: bad_option("frames", "8 is impossible", ...).
inline Error bad_option(const std::string& field, const std::string& problem, std::string remedy) {
  return {2, problem, std::move(remedy), {.field = field}};
}

/// The same of a file: "clip.mp4: no such file".
inline Error bad_file(const std::string& file, const std::string& problem, std::string remedy) {
  return {2, file + ": " + problem, std::move(remedy), {.file = file}};
}

/// Something failed while running (disk full, out of memory, a device error): exit code 1.
inline Error run_failure(const std::string& cause, std::string remedy) {
  return {1, cause, std::move(remedy)};
}

}  // namespace sparsereel
