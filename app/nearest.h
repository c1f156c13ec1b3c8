// Which of the names that exist the user most likely meant. No torch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app {

/// The name with the fewest letters to add, drop, change or swap with a neighbour; empty where more than a third of
/// `given` would have to change.
std::string nearest(std::string_view given, const std::vector<std::string>& names);

}  // namespace sparsereel::app
