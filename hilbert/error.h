// The program's one exception. It lives in the lowest library so that every library can throw it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel {

/// What an error is about, where that can be told: a field of the request, by its key in YAML files and recipes
/// ("frames"), or a file by its path. Who gave either knows by which option; messages are for people only.
struct ErrorSubject {
  std::string field = {}, file = {};
};

/// One of several ways out of an error: what the caller may ask for in addition.
struct ErrorChoice {
  std::string group = {}, title = {};                            // for people; choices of one group stand together
  std::vector<std::pair<std::string, std::string>> values = {};  // by the fields' names, as ErrorSubject::field
};

enum class ErrorKind {
  bad_input,  // the caller's arguments or files are wrong
  failed,     // something went wrong while running: disk full, out of memory, a device error
  cancelled,  // the caller wanted no more
};

/// What went wrong and what to do about it. `what()` is the cause: it names the file, or begins with the field at
/// fault. A program says cause and remedy, a line each. Elsewhere it is caught only to become a result (a row of a set,
/// a contender of a benchmark) or to undo what was half done.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& cause, std::string remedy, ErrorSubject subject = {})
      : std::runtime_error(subject.field.empty() ? cause : subject.field + " " + cause),
        kind_(kind),
        remedy_(std::move(remedy)),
        subject_(std::move(subject)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& field() const { return subject_.field; }
  const std::string& file() const { return subject_.file; }
  const std::vector<ErrorChoice>& choices() const { return choices_; }
  /// The same error with these ways out.
  Error with_choices(std::vector<ErrorChoice> choices) const {
    Error error = *this;
    error.choices_ = std::move(choices);
    return error;
  }
  /// The cause without the field's name: "8 is impossible".
  std::string problem() const { return field().empty() ? what() : what() + field().size() + 1; }

 private:
  ErrorKind kind_;
  std::string remedy_;
  ErrorSubject subject_;
  std::vector<ErrorChoice> choices_;
};

/// The caller's arguments or files are wrong.
inline Error bad_input(const std::string& cause, std::string remedy) {
  return {ErrorKind::bad_input, cause, std::move(remedy)};
}

/// The same of one field of the request: bad_option("frames", "8 is impossible", ...).
inline Error bad_option(const std::string& field, const std::string& problem, std::string remedy) {
  return {ErrorKind::bad_input, problem, std::move(remedy), {.field = field}};
}

/// The same of a file: "clip.mp4: no such file".
inline Error bad_file(const std::string& file, const std::string& problem, std::string remedy) {
  return {ErrorKind::bad_input, file + ": " + problem, std::move(remedy), {.file = file}};
}

/// Something failed while running (disk full, out of memory, a device error).
inline Error run_failure(const std::string& cause, std::string remedy) {
  return {ErrorKind::failed, cause, std::move(remedy)};
}

}  // namespace sparsereel
