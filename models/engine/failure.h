// Translates exceptions for users, in one place for the command line and the library.
#pragma once

#include <exception>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Converts any exception that can end a run to an Error with kind, cause and remedy.
Error as_error(const std::exception_ptr& exception);

/// Returns the exit code of the program: 1 for failed, 2 for bad input, 130 for cancelled (as by Ctrl-C).
constexpr int exit_code(ErrorKind kind) {
  return kind == ErrorKind::bad_input ? 2 : kind == ErrorKind::failed ? 1 : 130;
}

}  // namespace sparsereel::models
