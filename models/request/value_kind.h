// The ways in which an option's value is written.
#pragma once

namespace sparsereel::models {

enum class ValueKind { text, file, folder, loras, whole, number, numbers, size, seed, flag, choice };

}  // namespace sparsereel::models
