// Names that nobody can guess. No torch.
#pragma once

#include <string>

namespace sparsereel::app::serve {

/// Returns 32 hexadecimal digits from the system's random numbers.
std::string random_name();

}  // namespace sparsereel::app::serve
