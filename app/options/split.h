// Lists that people write into one text. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app {

/// "0.5, 0.3" -> {"0.5", "0.3"}; white space around items is dropped, empty items stay.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace sparsereel::app
