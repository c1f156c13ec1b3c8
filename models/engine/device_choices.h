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

/// Returns the dtype in which a run need not convert the weights: that of the first transformer's file. `files` replace
/// files of the checkpoint. If one of them holds packed weights (see Dtype), returns bf16 instead, because the 16-bit
/// tensors in such a file do not tell the dtype that the model was made for.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

/// Returns the mode that the user asked for. If the user asked for none, returns sparse if the device supports it, else
/// full. Throws Error if the device does not support the mode that the user asked for.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
