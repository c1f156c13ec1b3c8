// What the tests' program has beside the others: a family of its own, and an option.
#pragma once

#include <vector>

#include "models/engine/components.h"
#include "models/request/fields.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::test {

models::Family toy_family();
models::ComponentLoaders toy_loaders();

/// --draft, a video of one step.
std::vector<models::Field> toy_fields();

}  // namespace sparsereel::test
