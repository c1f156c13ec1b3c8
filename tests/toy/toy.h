// Declares the model family and the option that only the tests' program has.
#pragma once

#include <vector>

#include "models/engine/components.h"
#include "models/request/fields.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::test {

models::Family toy_family();
models::ComponentLoaders toy_loaders();

/// Returns --draft, which asks for a video of one step.
std::vector<models::Field> toy_fields();

}  // namespace sparsereel::test
