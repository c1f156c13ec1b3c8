// What the device and the checkpoint's files decide of a plan: its dtype, and how attention runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "attention/policies/policy.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// That of a run which takes the weights as they are: bf16 where one of `files`, which were put in place of the
/// checkpoint's, holds packed ones, since the halves beside them say nothing of the model; else the first
/// transformer's.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

/// The mode asked for, else sparse where that runs, else full. Throws Error where it cannot run.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
