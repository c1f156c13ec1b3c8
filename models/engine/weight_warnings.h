// Says where 8-bit weights are not what their option promises.
#pragma once

#include <string>

#include "models/store/checkpoint/component.h"

namespace sparsereel::models {

/// Says which layers "weights fp8" leaves as their file stores them, since their numbers are not e4m3: "weights fp8 has
/// no effect for 12 weights in nvfp4 of transformer: ...". `field` is the option's name. Empty if there are none, or
/// for another `asked` value than fp8.
std::string kept_warning(const Component& component, const std::string& field, const std::string& asked,
                         const std::string& role);

}  // namespace sparsereel::models
