// Chooses a run's dtype and attention mode, which depend on the device and the checkpoint's files.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "attention/policies/policy.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Returns the dtype of a run that does not convert the weights: the dtype of the first transformer. If one of `files`,
/// which replace the checkpoint's files, holds packed weights (see Dtype), returns bf16, because the 16-bit tensors
/// beside packed weights say nothing about the model.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

/// Returns the mode that the user asked for. If there is none, returns sparse if the device supports it, else full.
/// Throws Error if the device does not support the mode that the user asked for.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
