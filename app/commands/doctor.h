// `sparsereel doctor`: what this machine and build offer, and what is missing.
#pragma once

namespace sparsereel::app {

/// `json`: as one object.
void doctor(bool json);

}  // namespace sparsereel::app
