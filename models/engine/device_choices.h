// Chooses what depends on the device and the checkpoint's files: the plan's dtype and attention mode.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>

#include "attention/policies/policy.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Returns the dtype of a run that takes the weights as they are. It is the first transformer's dtype. If one of
/// `files`, which replace the checkpoint's, holds packed weights, it is bf16: the 16-bit tensors beside packed ones say
/// nothing about the model.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

/// Returns the mode asked for, else sparse if that can run, else full. Throws Error if it cannot run.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
