// Messages between ranks: JSON encoded as CBOR, in which strings may hold any bytes. The size of a message, in 8 bytes,
// precedes it. Tensors may follow a message.
#pragma once

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "models/parallel/socket_group.h"

namespace sparsereel::models {

/// Encodes a message as the bytes to send.
std::string packed_message(const nlohmann::json& message);
/// Removes the first message from the received bytes and returns it; returns nothing if it is not complete yet. Throws
/// Error if the bytes are not one of our messages.
std::optional<nlohmann::json> take_message(std::string& received);

/// Sends a message from rank 0, which calls this, to all other ranks.
void send_message(SocketGroup& group, const nlohmann::json& message);
/// Receives the next message of rank 0's send_message(). All other ranks call this. Waits as long as rank 0 takes.
/// Throws Error as Group does, and if the bytes are not one of our messages.
nlohmann::json receive_message(SocketGroup& group);

/// Send a tensor (rank 0) and receive it on the CPU (all other ranks). An undefined tensor stays undefined.
/// receive_tensor() throws Error if dtype or shape is impossible.
void send_tensor(SocketGroup& group, const at::Tensor& tensor);
at::Tensor receive_tensor(SocketGroup& group);

}  // namespace sparsereel::models
