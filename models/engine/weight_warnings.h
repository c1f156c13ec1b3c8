// Warns about weights that an option for 8-bit weights does not change.
#pragma once

#include <string>

#include "models/store/checkpoint/component.h"

namespace sparsereel::models {

/// Returns a warning about weights that "weights fp8" leaves as their file stores them, because they are in another
/// packed format than e4m3: "weights fp8 has no effect for 12 weights in nvfp4 of transformer: ...". `field` is the
/// option's name, `asked` its value. Empty if there are no such weights, or if `asked` is not fp8.
std::string kept_warning(const Component& component, const std::string& field, const std::string& asked,
                         const std::string& role);

}  // namespace sparsereel::models
