// Functions that the files option_groups_*.cpp share. These files declare the options.
#include "app/options/option_groups.h"

namespace sparsereel::app::groups {

std::vector<Command> that_denoise() {
  return {Command::bench_pipeline, Command::bench_quality, Command::tune};
}

std::vector<Command> with_a_model() {
  std::vector<Command> commands = that_denoise();
  commands.push_back(Command::decode);
  return commands;
}

std::vector<OptionSpec> joined(const std::vector<std::vector<OptionSpec>>& lists) {
  std::vector<OptionSpec> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace sparsereel::app::groups
