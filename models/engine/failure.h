// What an exception means to the user: one place for the command line and the library.
#pragma once

#include <exception>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Cause, remedy and exit code (1 failed, 2 bad input, 130 cancelled) of any exception that a run can end with.
Error as_error(const std::exception_ptr& exception);

}  // namespace sparsereel::models
