// Handles Ctrl-C, SIGTERM, SIGHUP and SIGQUIT. The first signal asks the run to stop and to keep its finished steps;
// the second ends the process at once. Before a run reaches its steps, the first signal ends the process at once:
// nothing is lost then, and the run may be waiting for input that never comes.
#pragma once

namespace sparsereel::app {

/// Starts to listen for signals; call it before any other thread starts. Tells the user about a signal unless `silent`.
/// Ignores SIGXFSZ and SIGPIPE, so that a file size limit or a closed pipe is an ordinary write error.
void install_signal_handlers(bool silent = false);

/// Returns true after the first signal. Keep polling it, within steps too: after the first call, the first signal no
/// longer ends the process.
bool interrupted();

}  // namespace sparsereel::app
