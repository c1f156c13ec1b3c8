// Messages as CBOR, which takes texts of any bytes; each is its size and itself.
#include "app/ranks/messages.h"

#include <ATen/ATen.h>

#include <vector>

namespace sparsereel::app {
namespace {

at::Tensor view_of_bytes(std::vector<uint8_t>& bytes) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte);
}

at::Tensor bytes_of_tensor(const at::Tensor& tensor) {
  return tensor.reshape({-1}).view(at::kByte);
}

}  // namespace

void tell(models::SocketGroup& group, const nlohmann::json& message) {
  std::vector<uint8_t> bytes = nlohmann::json::to_cbor(message);
  group.broadcast(at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong), 0);
  group.broadcast(view_of_bytes(bytes), 0);
}

nlohmann::json hear(models::SocketGroup& group) {
  const at::Tensor size = at::zeros({1}, at::kLong);
  group.wait_for(size, 0);
  std::vector<uint8_t> bytes(static_cast<size_t>(size.item<int64_t>()));
  group.broadcast(view_of_bytes(bytes), 0);
  return nlohmann::json::from_cbor(bytes);
}

void tell_tensor(models::SocketGroup& group, const at::Tensor& tensor) {
  if (!tensor.defined()) return tell(group, nullptr);
  tell(group, {{"dtype", static_cast<int>(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}});
  group.broadcast(bytes_of_tensor(tensor.contiguous()), 0);
}

at::Tensor hear_tensor(models::SocketGroup& group) {
  const nlohmann::json form = hear(group);
  if (form.is_null()) return {};
  at::Tensor tensor =
      at::empty(form.at("shape").get<std::vector<int64_t>>(), static_cast<at::ScalarType>(form.at("dtype").get<int>()));
  group.broadcast(bytes_of_tensor(tensor), 0);
  return tensor;
}

}  // namespace sparsereel::app
