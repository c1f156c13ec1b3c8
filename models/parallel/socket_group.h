// A group of processes connected by sockets. Between CPU ranks it carries everything. GPU ranks exchange tensors by
// NCCL, and control messages by this group.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "hilbert/error.h"
#include "models/parallel/group.h"
#include "models/parallel/links.h"

namespace sparsereel::models {

class SocketMesh;

class SocketGroup final : public Group {
 public:
  /// Connects the ranks. Takes ownership of `links`, one for each rank. `name` is this rank's device in messages,
  /// "cuda:1". Throws Error naming a rank that has not connected within limits.start.
  static std::shared_ptr<SocketGroup> connect(int64_t rank, std::vector<Link> links, const std::string& name,
                                              const GroupLimits& limits = {});

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  // These calls copy tensors on a GPU through host memory.
  void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) override;
  void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) override;
  void all_reduce_sum(const at::Tensor& tensor) override;
  void all_reduce_max(const at::Tensor& tensor) override;
  void broadcast(const at::Tensor& tensor, int64_t root) override;
  /// Splits the group. The new groups use the same sockets, so whatever ends one of them ends all.
  std::shared_ptr<Group> split(int64_t color) override;
  Windows* windows(int64_t /*bytes*/, at::Device /*device*/) override { return nullptr; }
  void close_windows() override {}
  /// The two halves of split(). The first gathers the colors of all ranks. The second makes the group of equal colors
  /// without any exchange.
  std::vector<int64_t> colors(int64_t color);
  std::shared_ptr<SocketGroup> part(std::span<const int64_t> colors) const;
  void abort(const std::string& reason) noexcept override;

  /// Ends the group like abort(), with this error's kind and remedy. `sound` says that this rank could go on with other
  /// work.
  void end(const Error& error, bool sound = false) noexcept;
  /// Ends the group because another rank, given by its number in this group, has ended or does not answer.
  void blame(int64_t rank, const std::string& what_it_did) noexcept;
  /// Receives or sends like broadcast(), but waits for `root` without a limit.
  void wait_for(const at::Tensor& tensor, int64_t root);
  // The functions below may be called from any thread.
  void check() const override;
  bool ended() const noexcept;
  /// Returns true if the rank that ended the group could go on with other work; see end().
  bool ended_soundly() const noexcept;
  /// Returns a rank that has left in order, as all ranks do at the end; nothing if none has. It will not make any more
  /// calls, so nobody should wait for it.
  std::optional<int64_t> who_left() const;
  /// Returns true if all other processes have closed their sockets, as they do when they end. Memory shared with them
  /// then belongs to this process alone.
  bool are_others_gone() const;
  /// Returns "rank 1 (cuda:1)".
  std::string describe(int64_t rank) const;
  const GroupLimits& limits() const;
  /// Runs `call` once, in a thread of the group, if the group ends (or has ended) other than by all ranks leaving.
  /// Returns a number for forget(), after which the call neither runs nor will run.
  int64_t when_ended(std::function<void()> call);
  void forget(int64_t number) noexcept;

 private:
  using Bytes = std::span<const at::Tensor>;
  SocketGroup(std::shared_ptr<SocketMesh> mesh, std::vector<int64_t> members);
  void check_count(std::span<const at::Tensor> tensors) const;
  void exchange(Bytes send, Bytes receive, std::chrono::milliseconds limit);
  void broadcast(const at::Tensor& tensor, int64_t root, std::chrono::milliseconds limit);
  std::vector<at::Tensor> gathered(const at::Tensor& tensor);

  std::shared_ptr<SocketMesh> mesh_;
  std::vector<int64_t> members_;  // the members' numbers in the mesh
  int64_t rank_ = 0;              // this process's index in members_
};

}  // namespace sparsereel::models
