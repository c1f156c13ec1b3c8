// Ctrl-C, SIGTERM, SIGHUP and SIGQUIT: the first asks the run to stop, which keeps the steps that are done; the second
// ends the process at once, and so does the first while a run has not come to its steps: there is nothing to lose or to
// report, and it may read from a pipe that nobody fills.
#pragma once

namespace sparsereel::app {

/// Starts to listen, before any other thread is started, and says so to the user unless `silent`; ignores SIGXFSZ and
/// SIGPIPE so that a file size limit or a reader that left is an ordinary write error.
void install_signal_handlers(bool silent = false);

/// True after the first of these signals. Keep polling it, within steps too: once it was called, the first signal no
/// longer ends the process.
bool interrupted();

}  // namespace sparsereel::app
