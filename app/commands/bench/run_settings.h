// What a benchmark of whole videos says about its model and its run, whatever it compares.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/options/options.h"

namespace sparsereel::app::bench {

/// The config of each component.
nlohmann::json architecture_of(const models::ModelFolder& folder);

/// Model, LoRAs, dtype, size, tokens, guidance, sampler, steps, seed and what all contenders share of the policy.
nlohmann::json run_settings(const RunOptions& run, const models::GenerateRequest& request,
                            const models::GenerateSettings& settings, const models::Pipeline& pipeline);

/// "NVIDIA H200, random weights of some.yaml, bf16, 49 frames of 720x480 (17776 tokens, guidance batch 2), 4
/// steps, seed 42"
std::string run_summary(const nlohmann::json& machine, const nlohmann::json& settings);

}  // namespace sparsereel::app::bench
