// Checks that every implementation of Group must pass. The tests of each implementation run all checks, and every rank
// of the group runs each check.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/parallel/group.h"

namespace sparsereel::test {

using models::Group;

/// Runs `part` on `size` ranks at once. Each rank gets its own Group object. Throws the exception of a rank that
/// failed.
using RunRanks = std::function<void(int64_t size, const std::function<void(Group&)>& part)>;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("this does not hold: " + what);
}

/// Returns the `count` numbers that rank `from` sends to rank `to`; they differ for each pair of ranks.
inline at::Tensor told(int64_t from, int64_t to, int64_t count, const at::TensorOptions& options) {
  return (at::arange(count, options.dtype(at::kLong)) + (10 * from + to)).to(options);
}

/// Checks all_to_all with a different size for each pair of ranks. Some sizes are zero.
inline void exchanges_uneven_pieces(Group& group, at::Device device) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kByte}) {
    const auto options = at::TensorOptions().device(device).dtype(dtype);
    const auto count = [](int64_t from, int64_t to) { return (from * 3 + to) % 4; };
    std::vector<at::Tensor> send, receive;
    for (int64_t i = 0; i < group.size(); ++i) {
      send.push_back(told(group.rank(), i, count(group.rank(), i), options));
      receive.push_back(at::empty({count(i, group.rank())}, options));
    }
    group.all_to_all(send, receive);
    for (int64_t i = 0; i < group.size(); ++i)
      require(at::equal(receive[static_cast<size_t>(i)], told(i, group.rank(), count(i, group.rank()), options)),
              "what rank " + std::to_string(i) + " sent came");
  }
}

/// Sends more bytes in both directions at once than the buffers of sockets hold. A group in which all ranks write
/// before they read would hang.
inline void exchanges_large_pieces(Group& group, at::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  const int64_t count = int64_t{1} << 20;
  const std::vector<at::Tensor> send(static_cast<size_t>(group.size()),
                                     at::full({count}, static_cast<double>(group.rank()), options));
  std::vector<at::Tensor> receive;
  for (int64_t i = 0; i < group.size(); ++i) receive.push_back(at::empty({count}, options));
  group.all_to_all(send, receive);
  for (int64_t i = 0; i < group.size(); ++i)
    require(receive[static_cast<size_t>(i)].eq(static_cast<double>(i)).all().item<bool>(), "large pieces came");
}

inline void gathers_shapes_that_differ(Group& group, at::Device device) {
  const auto options = at::TensorOptions().device(device).dtype(at::kFloat);
  std::vector<at::Tensor> receive;
  for (int64_t i = 0; i < group.size(); ++i) receive.push_back(at::empty({i, 2}, options));
  group.all_gather(at::full({group.rank(), 2}, static_cast<double>(group.rank()), options), receive);
  for (int64_t i = 0; i < group.size(); ++i)
    require(receive[static_cast<size_t>(i)].eq(static_cast<double>(i)).all().item<bool>(), "gathered");
}

inline void reduces_to_the_same_bits(Group& group, at::Device device) {
  const int64_t n = group.size();
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kLong}) {
    const at::Tensor sum = at::arange(3, at::TensorOptions().device(device).dtype(dtype)) + group.rank();
    const at::Tensor most = sum.clone();
    group.all_reduce_sum(sum);
    group.all_reduce_max(most);
    const at::Tensor base = at::arange(3, sum.options());
    require(at::equal(sum, base * n + n * (n - 1) / 2), "sums");
    require(at::equal(most, base + (n - 1)), "maxima");
  }
  // The sum of these floats depends on the order of the additions, yet every rank must get the same bits as rank 0.
  at::Tensor odd = at::arange(1000, at::TensorOptions().device(device).dtype(at::kFloat)).add_(0.1).pow_(group.rank());
  group.all_reduce_sum(odd);
  const at::Tensor first = odd.clone();
  group.broadcast(first, 0);
  require(at::equal(first, odd), "the same bits on all ranks");
}

inline void broadcasts_from_every_root(Group& group, at::Device device) {
  for (int64_t root = 0; root < group.size(); ++root) {
    const at::Tensor tensor = at::full({5}, static_cast<double>(group.rank()), at::TensorOptions().device(device));
    group.broadcast(tensor, root);
    require(tensor.eq(static_cast<double>(root)).all().item<bool>(), "the root's numbers");
  }
}

/// Splits the group into two parts, and alternates sums over a part with sums over the whole group. Each sum must be
/// correct.
inline void splits_by_color(Group& group, at::Device device) {
  const auto part = group.split(group.rank() % 2);
  require(part->size() == (group.size() + 1 - group.rank() % 2) / 2, "the part's size");
  require(part->rank() == group.rank() / 2, "the rank's place in the part");
  for (int turn = 0; turn < 3; ++turn) {
    const at::Tensor here = at::full({2}, static_cast<double>(group.rank()), at::TensorOptions().device(device));
    const at::Tensor all = here.clone();
    part->all_reduce_sum(here);
    group.all_reduce_sum(all);
    int64_t expected = 0;
    for (int64_t i = group.rank() % 2; i < group.size(); i += 2) expected += i;
    require(here.eq(static_cast<double>(expected)).all().item<bool>(), "the part's sum");
    require(all.eq(static_cast<double>(group.size() * (group.size() - 1) / 2)).all().item<bool>(), "the sum over all");
  }
  const auto alone = part->split(part->rank());
  require(alone->size() == 1, "a part of one");
  alone->all_reduce_sum(at::ones({1}, at::TensorOptions().device(device)));
}

/// Checks in several rounds that every rank finds the numbers that the other ranks wrote into its window (memory into
/// which peers write directly). The windows grow, and are closed and opened again. Returns false on all ranks if the
/// group has no windows.
inline bool puts_into_windows(Group& group, at::Device device) {
  const int64_t size = group.size(), own = group.rank();
  const auto options = at::TensorOptions().device(device).dtype(at::kLong);
  for (const int64_t count : {10, 100'000, 100'000}) {
    // True while all rounds were correct. It is read only after the last round, so that no round waits for the GPU.
    at::Tensor right = at::ones({}, options.dtype(at::kBool));
    for (int64_t round = 0; round < 20; ++round) {
      models::Windows* windows = group.windows(2 * size * count * 8, device);
      if (windows == nullptr) return false;
      // The numbers that `maker` wrote into the window of `rank`. Rounds alternate between the two halves of a window.
      const auto part = [&](int64_t rank, int64_t maker) {
        return windows->of(rank).view(at::kLong).narrow(0, (round % 2 * size + maker) * count, count);
      };
      windows->exchange([&] {
        for (int64_t rank = 0; rank < size; ++rank) part(rank, own).copy_(told(own, rank, count, options) + round);
      });
      for (int64_t rank = 0; rank < size; ++rank)
        right = right.logical_and(part(own, rank).eq(told(rank, own, count, options) + round).all());
      for (const int64_t numbers : {1, 3000, 5000}) {
        const at::Tensor sum = told(own, round, numbers, options);
        group.all_reduce_sum(sum);
        right = right.logical_and(sum.eq(told(0, round, numbers, options) * size + 5 * size * (size - 1)).all());
      }
    }
    require(right.item<bool>(), "what all ranks put is there, and sums are right while there are windows");
    if (count > 10) group.close_windows();
  }
  return true;
}

/// Repeats a sum over the group until the sum throws an Error. Returns the error's message.
inline std::string end_of(Group& group, at::Device device) {
  try {
    for (;;) {
      const at::Tensor one = at::ones({1}, at::TensorOptions().device(device));
      group.all_reduce_sum(one);
      one.item<float>();  // waits for the GPU, which shows errors of the sum
    }
  } catch (const Error& error) {
    return error.what();
  }
}

inline void aborts_for_all(Group& group, at::Device device) {
  if (group.rank() == group.size() - 1) {
    // The sum returns only after all ranks have started.
    group.all_reduce_sum(at::ones({1}, at::TensorOptions().device(device)));
    group.abort("it rains");
    group.abort("something else");
  }
  const std::string said = end_of(group, device);
  const std::string who = "rank " + std::to_string(group.size() - 1);
  require(said.find("it rains") != std::string::npos && said.find(who) != std::string::npos, "who and why: " + said);
  require(end_of(group, device) == said, "nothing can be exchanged after that");
}

/// Checks that the other ranks name the last rank in their errors if it ends without calling abort().
inline void names_who_left(Group& group, at::Device device) {
  if (group.rank() == group.size() - 1) return;
  const std::string said = end_of(group, device);
  require(said.find("rank " + std::to_string(group.size() - 1)) != std::string::npos, "who is gone: " + said);
}

}  // namespace sparsereel::test
