// Ctrl-C, SIGTERM, SIGHUP and SIGQUIT: the first asks the run to stop between steps, the second ends the process at
// once.
#pragma once

namespace sparsereel::app {

/// Starts to listen, before any other thread is started, and ignores SIGXFSZ and SIGPIPE so that a file size limit or a
/// reader that left is an ordinary write error.
void install_signal_handlers();

/// True after the first of these signals.
bool interrupted();

}  // namespace sparsereel::app
