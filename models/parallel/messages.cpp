// Sends a message's size first, so that the receivers can allocate room for it.
#include "models/parallel/messages.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "hilbert/error.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMostMessageBytes = 64 << 20;          // without the tensors that may follow
constexpr int64_t kMostTensorBytes = int64_t{64} << 30;  // no host can hold more
constexpr size_t kMostDimensions = 8;
constexpr const char* kSource = "a message from rank 0";
constexpr const char* kRemedy = "start all ranks with the same program";

at::Tensor view_of_bytes(std::string& bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte);
}

void check_size(int64_t size) {
  if (size < 1 || size > kMostMessageBytes)
    throw run_failure(std::string(kSource) + " has an impossible size", kRemedy);
}

at::Tensor bytes_of_tensor(const at::Tensor& tensor) {
  return tensor.reshape({-1}).view(at::kByte);
}

Error no_tensor(const std::string& problem) {
  return run_failure(std::string(kSource) + " does not describe a tensor: " + problem, kRemedy);
}

at::ScalarType dtype_in(const nlohmann::json& form) {
  constexpr std::array<at::ScalarType, 9> kTold = {at::kByte,  at::kChar,   at::kInt,  at::kLong,    at::kHalf,
                                                   at::kFloat, at::kDouble, at::kBool, at::kBFloat16};
  const auto field = form.find("dtype");
  if (field != form.end() && field->is_number_integer())
    for (const at::ScalarType dtype : kTold)
      if (field->get<int64_t>() == static_cast<int64_t>(dtype)) return dtype;
  throw no_tensor("its dtype is unknown");
}

std::vector<int64_t> shape_in(const nlohmann::json& form, at::ScalarType dtype) {
  const auto field = form.find("shape");
  if (field == form.end() || !field->is_array() || field->size() > kMostDimensions) throw no_tensor("it has no shape");
  std::vector<int64_t> shape;
  auto left = kMostTensorBytes / static_cast<int64_t>(c10::elementSize(dtype));
  for (const nlohmann::json& size : *field) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(kMostTensorBytes))
      throw no_tensor("its sizes are impossible");
    shape.push_back(size.get<int64_t>());
    if (shape.back() > left) throw no_tensor("it is too large");
    left /= std::max<int64_t>(shape.back(), 1);
  }
  return shape;
}

}  // namespace

std::string packed_message(const nlohmann::json& message) {
  std::string bytes(sizeof(int64_t), '\0');
  nlohmann::json::to_cbor(message, bytes);
  const auto size = static_cast<int64_t>(bytes.size() - sizeof(int64_t));
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes;
}

std::optional<nlohmann::json> take_message(std::string& received) {
  int64_t size = 0;
  if (received.size() < sizeof(size)) return std::nullopt;
  std::memcpy(&size, received.data(), sizeof(size));
  check_size(size);
  const size_t end = sizeof(size) + static_cast<size_t>(size);
  if (received.size() < end) return std::nullopt;
  const auto* bytes = reinterpret_cast<const uint8_t*>(received.data()) + sizeof(size);
  nlohmann::json message = parse_cbor({bytes, static_cast<size_t>(size)}, kSource, kRemedy);
  received.erase(0, end);
  return message;
}

void send_message(SocketGroup& group, const nlohmann::json& message) {
  std::string bytes = packed_message(message);
  group.broadcast(view_of_bytes(bytes).narrow(0, 0, sizeof(int64_t)), 0);
  group.broadcast(view_of_bytes(bytes).narrow(0, sizeof(int64_t), std::ssize(bytes) - ssize_t{sizeof(int64_t)}), 0);
}

nlohmann::json receive_message(SocketGroup& group) {
  std::string bytes(sizeof(int64_t), '\0');
  group.wait_for(view_of_bytes(bytes), 0);
  int64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  check_size(size);
  bytes.resize(sizeof(size) + static_cast<size_t>(size));
  group.broadcast(view_of_bytes(bytes).narrow(0, sizeof(size), size), 0);
  return *take_message(bytes);
}

void send_tensor(SocketGroup& group, const at::Tensor& tensor) {
  if (!tensor.defined()) return send_message(group, nullptr);
  send_message(group, {{"dtype", static_cast<int>(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}});
  group.broadcast(bytes_of_tensor(tensor.cpu().contiguous()), 0);
}

at::Tensor receive_tensor(SocketGroup& group) {
  const nlohmann::json form = receive_message(group);
  if (form.is_null()) return {};
  if (!form.is_object()) throw no_tensor("it is not an object");
  const at::ScalarType dtype = dtype_in(form);
  at::Tensor tensor = at::empty(shape_in(form, dtype), dtype);
  group.broadcast(bytes_of_tensor(tensor), 0);
  return tensor;
}

}  // namespace sparsereel::models
