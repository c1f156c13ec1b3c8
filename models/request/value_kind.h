// How the value of an option is written.
#pragma once

namespace sparsereel::models {

enum class ValueKind { text, file, folder, loras, whole, number, numbers, size, seed, flag, choice };

}  // namespace sparsereel::models
