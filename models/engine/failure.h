// Translates exceptions for users, in one place for the command line and the library.
#pragma once

#include <exception>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Returns kind, cause and remedy of any exception that can end a run.
Error as_error(const std::exception_ptr& exception);

/// Returns a program's exit code: 1 failed, 2 bad input, 130 cancelled (as by Ctrl-C).
constexpr int exit_code(ErrorKind kind) {
  return kind == ErrorKind::bad_input ? 2 : kind == ErrorKind::failed ? 1 : 130;
}

}  // namespace sparsereel::models
