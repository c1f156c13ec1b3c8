// The program's only exception type. It is in the lowest library so that every library can throw it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel {

/// The subject of an error, if known: a field of the request, by its key in YAML files and recipes ("frames"), or the
/// path of a file. Programs should use it to find the option at fault, because messages are for people only.
struct ErrorSubject {
  std::string field = {}, file = {};
};

/// One of several ways out of an error: values of the request that the caller may set and then try again.
struct ErrorChoice {
  std::string group = {}, title = {};  // texts for people; choices of one group are listed together
  std::vector<std::pair<std::string, std::string>> values = {};  // names as in ErrorSubject::field, and their values
};

enum class ErrorKind {
  bad_input,  // the caller's arguments or files are wrong
  failed,     // something went wrong while running: disk full, out of memory, a device error
  cancelled,  // the caller cancelled
};

/// The cause and the remedy of an error. what() is the cause: it names the file or begins with the field at fault. A
/// program prints the cause and the remedy on a line each. Other code catches an Error only to store it as a result
/// (the failure of a row in a prompt set, or of a contender in a benchmark), to do without something that is optional
/// or unreadable, to throw a better error, or to undo half-done work.
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
  /// Returns the same error with these choices.
  Error with_choices(std::vector<ErrorChoice> choices) const {
    Error error = *this;
    error.choices_ = std::move(choices);
    return error;
  }
  /// Returns the cause without the field's name: "8 is impossible".
  std::string problem() const { return field().empty() ? what() : what() + field().size() + 1; }

 private:
  ErrorKind kind_;
  std::string remedy_;
  ErrorSubject subject_;
  std::vector<ErrorChoice> choices_;
};

inline Error bad_input(const std::string& cause, std::string remedy) {
  return {ErrorKind::bad_input, cause, std::move(remedy)};
}

/// Returns a bad_input error about a field of the request: bad_option("frames", "8 is impossible", ...).
inline Error bad_option(const std::string& field, const std::string& problem, std::string remedy) {
  return {ErrorKind::bad_input, problem, std::move(remedy), {.field = field}};
}

/// Returns a bad_input error about a file: "clip.mp4: no such file".
inline Error bad_file(const std::string& file, const std::string& problem, std::string remedy) {
  return {ErrorKind::bad_input, file + ": " + problem, std::move(remedy), {.file = file}};
}

inline Error run_failure(const std::string& cause, std::string remedy) {
  return {ErrorKind::failed, cause, std::move(remedy)};
}

}  // namespace sparsereel
