// The results of a tuning run: the profile, the report, and the summary for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/lab/measure/chart.h"
#include "app/lab/tune/session.h"
#include "attention/policies/profile.h"

namespace sparsereel::app::tuning {

attention::Profile make_profile(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline,
                                const Found& found);

/// Returns a text that says how the best videos miss the goal; empty if they reach it.
std::string missed_goal(const TunePlan& plan, const Found& found);

std::vector<std::string> warnings_of(const TunePlan& plan, const Found& found, const attention::Profile& profile);

nlohmann::json found_report(const TunePlan& plan, const Found& found, const attention::Profile& profile,
                            const TuneState& state);

/// Returns a line about the result, then a table that compares it with the presets.
std::string summary(const TunePlan& plan, const Found& found, const attention::Profile& profile,
                    const std::filesystem::path& output, double seconds);

HeatMap heat_map(const attention::Profile& profile);

}  // namespace sparsereel::app::tuning
