// Ctrl-C and SIGTERM: the first asks the run to stop between steps, the second ends the process at once.
#pragma once

namespace sparsereel::app {

/// Installs the handlers, and ignores SIGXFSZ so that a file size limit is an ordinary write error.
void install_signal_handlers();

/// True after the first SIGINT or SIGTERM.
bool interrupted();

}  // namespace sparsereel::app
