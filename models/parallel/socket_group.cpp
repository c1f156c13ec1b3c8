// Implements calls on tensors by transfers of bytes. Every rank adds in the order of ranks, so sums have the same bits
// everywhere.
#include "models/parallel/socket_group.h"

#include <ATen/ATen.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "models/parallel/socket_mesh.h"

namespace sparsereel::models {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> room_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

/// Copies of tensors on the host. give() copies received data back into the tensors.
class OnHost {
 public:
  OnHost(std::span<const at::Tensor> tensors, bool with_values) : tensors_(tensors) {
    for (const at::Tensor& tensor : tensors)
      host_.push_back(tensor.is_cpu() ? tensor
                      : with_values   ? tensor.to(at::kCPU)
                                      : at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
  }
  const at::Tensor& operator[](size_t i) const { return host_[i]; }
  void give() const {
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (!tensors_[i].is_cpu()) tensors_[i].copy_(host_[i]);
  }

 private:
  std::span<const at::Tensor> tensors_;
  std::vector<at::Tensor> host_;
};

void check_contiguous(const at::Tensor& tensor) {
  if (!tensor.is_contiguous())
    throw run_failure("a tensor to exchange between ranks is not contiguous",
                      "this is a bug in sparsereel: report it with the command line");
}

}  // namespace

SocketGroup::SocketGroup(std::shared_ptr<SocketMesh> mesh, std::vector<int64_t> members)
    : mesh_(std::move(mesh)), members_(std::move(members)) {
  rank_ = std::ranges::find(members_, mesh_->rank()) - members_.begin();
}

std::shared_ptr<SocketGroup> SocketGroup::connect(int64_t rank, std::vector<Link> links, const std::string& name,
                                                  const GroupLimits& limits) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < static_cast<int64_t>(links.size()); ++i) all.push_back(i);
  auto mesh = std::make_shared<SocketMesh>(rank, std::move(links), limits);
  mesh->meet(name);
  return std::shared_ptr<SocketGroup>(new SocketGroup(std::move(mesh), std::move(all)));
}

void SocketGroup::check_count(std::span<const at::Tensor> tensors) const {
  if (static_cast<int64_t>(tensors.size()) != size())
    throw run_failure("a collective call of " + std::to_string(size()) + " ranks got " +
                          std::to_string(tensors.size()) + " tensors, not one for each rank",
                      "this is a bug in sparsereel: report it with the command line");
  for (const at::Tensor& tensor : tensors) check_contiguous(tensor);
}

void SocketGroup::exchange(Bytes send, Bytes receive, std::chrono::milliseconds limit) {
  check_count(send);
  check_count(receive);
  const OnHost out(send, /*with_values=*/true), in(receive, /*with_values=*/false);
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (static_cast<int64_t>(i) == rank_)
      in[i].copy_(out[i]);
    else
      transfers.push_back({.rank = members_[i], .send = bytes_of(out[i]), .receive = room_of(in[i])});
  }
  mesh_->exchange(transfers, limit);
  in.give();
}

void SocketGroup::all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) {
  exchange(send, receive, limits().call);
}

void SocketGroup::all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) {
  const at::Tensor once = send.to(at::kCPU);
  const std::vector<at::Tensor> to_each(members_.size(), once);
  exchange(to_each, receive, limits().call);
}

std::vector<at::Tensor> SocketGroup::gathered(const at::Tensor& tensor) {
  check_contiguous(tensor);
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < members_.size(); ++i)
    all.push_back(at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
  all_gather(tensor, all);
  return all;
}

void SocketGroup::all_reduce_sum(const at::Tensor& tensor) {
  const std::vector<at::Tensor> all = gathered(tensor);
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  at::Tensor sum = half ? all.front().to(at::kFloat) : all.front();
  for (size_t i = 1; i < all.size(); ++i) sum.add_(all[i]);
  tensor.copy_(sum);
}

void SocketGroup::all_reduce_max(const at::Tensor& tensor) {
  const std::vector<at::Tensor> all = gathered(tensor);
  at::Tensor most = all.front();
  for (size_t i = 1; i < all.size(); ++i) most = at::maximum(most, all[i]);
  tensor.copy_(most);
}

void SocketGroup::broadcast(const at::Tensor& tensor, int64_t root) {
  broadcast(tensor, root, limits().call);
}

void SocketGroup::wait_for(const at::Tensor& tensor, int64_t root) {
  broadcast(tensor, root, std::chrono::hours(24 * 365));
}

void SocketGroup::broadcast(const at::Tensor& tensor, int64_t root, std::chrono::milliseconds limit) {
  check_contiguous(tensor);
  const OnHost host({&tensor, 1}, /*with_values=*/rank_ == root);
  std::vector<Transfer> transfers;
  if (rank_ != root) {
    transfers.push_back({.rank = members_.at(static_cast<size_t>(root)), .receive = room_of(host[0])});
  } else {
    for (const int64_t member : members_)
      if (member != mesh_->rank()) transfers.push_back({.rank = member, .send = bytes_of(host[0])});
  }
  mesh_->exchange(transfers, limit);
  if (rank_ != root) host.give();
}

std::shared_ptr<Group> SocketGroup::split(int64_t color) {
  return part(colors(color));
}

std::vector<int64_t> SocketGroup::colors(int64_t color) {
  std::vector<int64_t> all;
  for (const at::Tensor& each : gathered(at::full({1}, color, at::kLong))) all.push_back(each.item<int64_t>());
  return all;
}

std::shared_ptr<SocketGroup> SocketGroup::part(std::span<const int64_t> colors) const {
  std::vector<int64_t> same;
  for (size_t i = 0; i < members_.size(); ++i)
    if (colors[i] == colors[static_cast<size_t>(rank_)]) same.push_back(members_[i]);
  return std::shared_ptr<SocketGroup>(new SocketGroup(mesh_, std::move(same)));
}

void SocketGroup::abort(const std::string& reason) noexcept {
  try {
    end(run_failure(reason, "run the same command again"));
  } catch (...) {  // there is no memory for a message, but the other ranks see the sockets close
  }
}

void SocketGroup::end(const Error& error, bool sound) noexcept {
  try {
    mesh_->fail({error.kind(), mesh_->describe(mesh_->rank()) + ": " + error.what(), error.remedy()}, sound);
  } catch (...) {
    mesh_->fail(error, sound);
  }
}

void SocketGroup::blame(int64_t rank, const std::string& what_it_did) noexcept {
  try {
    const int64_t member = members_.at(static_cast<size_t>(rank));
    mesh_->fail(run_failure(mesh_->describe(member) + " " + what_it_did,
                            "find out what ended it, then run the same command again"));
  } catch (...) {
    abort("a rank ended");
  }
}

void SocketGroup::check() const {
  mesh_->check();
}

bool SocketGroup::ended() const noexcept {
  return mesh_->ended();
}

bool SocketGroup::ended_soundly() const noexcept {
  return mesh_->ended_soundly();
}

std::optional<int64_t> SocketGroup::who_left() const {
  for (size_t i = 0; i < members_.size(); ++i)
    if (mesh_->has_left(members_[i])) return static_cast<int64_t>(i);
  return std::nullopt;
}

bool SocketGroup::are_others_gone() const {
  return mesh_->are_others_gone();
}

std::string SocketGroup::describe(int64_t rank) const {
  return mesh_->describe(members_.at(static_cast<size_t>(rank)));
}

const GroupLimits& SocketGroup::limits() const {
  return mesh_->limits();
}

int64_t SocketGroup::when_ended(std::function<void()> call) {
  return mesh_->when_ended(std::move(call));
}

void SocketGroup::forget(int64_t number) noexcept {
  mesh_->forget(number);
}

}  // namespace sparsereel::models
