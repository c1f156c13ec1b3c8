// The option values of the program: models::Settings with the options of its commands.
#pragma once

#include "app/options/option_table.h"
#include "models/request/settings.h"

namespace sparsereel::app {

using models::files_in;
using models::is_random_seed;
using models::kRandomSeed;
using models::Mark;
using models::Place;
using models::Places;
using models::PresetUse;
using models::Setting;
using models::Source;

/// Returns the options of option_table().
const models::OptionList& program_options();

class Settings : public models::Settings {
 public:
  Settings() : models::Settings(program_options()) {}
};

}  // namespace sparsereel::app
