// Ranks send each other JSON as CBOR, whose texts may be any bytes, behind its size in 8 bytes. Tensors follow it.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/parallel/socket_group.h"

namespace sparsereel::models {

/// A message as it travels.
std::string packed(const nlohmann::json& message);
/// Takes the first message from the beginning of what has come; nothing where it is not whole yet. Throws Error where
/// what came is no message of ours.
std::optional<nlohmann::json> take_message(std::string& come);

/// Called by rank 0.
void tell(SocketGroup& group, const nlohmann::json& message);
/// Called by the others. Waits for as long as it takes rank 0 to tell something. Throws Error as Group says, and where
/// what came is no message of ours.
nlohmann::json hear(SocketGroup& group);

/// Rank 0 tells a tensor and the others hear it, on the CPU; undefined ones stay so. hear_tensor() throws Error where
/// dtype or shape are impossible.
void tell_tensor(SocketGroup& group, const at::Tensor& tensor);
at::Tensor hear_tensor(SocketGroup& group);

}  // namespace sparsereel::models
