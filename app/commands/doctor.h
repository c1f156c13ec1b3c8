// `sparsereel doctor`: what this machine and build offer, and what is missing.
#pragma once

namespace sparsereel::app {

void doctor();

}  // namespace sparsereel::app
