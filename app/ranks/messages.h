// What rank 0 tells the others before they make a video together: JSON, and tensors behind it.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>

#include "models/parallel/socket_group.h"

namespace sparsereel::app {

/// By rank 0. Texts may be any bytes.
void tell(models::SocketGroup& group, const nlohmann::json& message);
/// Called by the others. Waits for as long as it takes rank 0 to tell something. Throws Error as Group says, and where
/// what came is no message of ours.
nlohmann::json hear(models::SocketGroup& group);

/// Rank 0 tells a tensor and the others hear it, on the CPU; undefined ones stay so. hear_tensor() throws Error where
/// dtype or shape are impossible.
void tell_tensor(models::SocketGroup& group, const at::Tensor& tensor);
at::Tensor hear_tensor(models::SocketGroup& group);

}  // namespace sparsereel::app
