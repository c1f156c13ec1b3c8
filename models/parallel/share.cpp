// Divides work among ranks, and joins slices.
#include "models/parallel/share.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

bool has_ranks_for_passes(int64_t ranks, int64_t passes) {
  return passes == 2 && ranks % 2 == 0;
}

/// Returns the number of ranks that share the tokens of a pass.
int64_t ranks_of_pass(int64_t ranks, int64_t passes) {
  return has_ranks_for_passes(ranks, passes) ? ranks / 2 : ranks;
}

/// Returns a pointer to the caller's group that does not own it.
std::shared_ptr<Group> callers(Group* group) {
  return {group, [](Group*) {}};
}

}  // namespace

Slice slice_of(int64_t count, int64_t ranks, int64_t rank) {
  const int64_t first = count * rank / ranks;
  return {.first = first, .count = count * (rank + 1) / ranks - first};
}

Slice slice_of(int64_t count, const Group* group) {
  return group == nullptr ? Slice{.first = 0, .count = count} : slice_of(count, group->size(), group->rank());
}

int64_t piece_of_height(int64_t rows, int64_t ranks) {
  return ranks == 1 ? rows : std::min(rows, (rows + ranks - 1) / ranks + 1);
}

std::vector<std::vector<int64_t>> splits_of_shares(int64_t ranks, int64_t passes) {
  const int64_t together = ranks_of_pass(ranks, passes);
  // Two cases need no splits, which cost time: all ranks share the tokens of each pass, or each pass has a single rank.
  // The ranks then use the whole group.
  if (!has_ranks_for_passes(ranks, passes) || together == 1) return {};
  std::vector<std::vector<int64_t>> splits(2);  // by tokens, by passes
  for (int64_t rank = 0; rank < ranks; ++rank) {
    splits[0].push_back(rank / together);
    splits[1].push_back(rank % together);
  }
  return splits;
}

SplitGroups share_of(Group* group, int64_t passes) {
  if (group == nullptr) return {};
  SplitGroups share{.all = group, .tokens = {}, .passes = {}};
  if (!has_ranks_for_passes(group->size(), passes)) {
    if (group->size() > 1) share.tokens = callers(group);
    return share;
  }
  const auto splits = splits_of_shares(group->size(), passes);
  if (splits.empty()) {
    share.passes = callers(group);
    return share;
  }
  const auto rank = static_cast<size_t>(group->rank());
  share.tokens = group->split(splits[0][rank]);
  share.passes = group->split(splits[1][rank]);
  return share;
}

std::shared_ptr<Group> first_ranks(Group& group, int64_t count) {
  if (count == group.size()) return callers(&group);
  return group.split(group.rank() < count ? 0 : 1);
}

void check_ranks(int64_t ranks, int64_t passes, int64_t heads, int64_t tokens) {
  const int64_t together = ranks_of_pass(ranks, passes), most = std::min(heads, tokens);
  if (together <= most) return;
  const std::string what = heads <= tokens ? " attention heads" : " tokens";
  const std::string even = passes == 2 ? ", or an even number up to " + std::to_string(2 * most) : "";
  throw bad_input(std::to_string(ranks) + " ranks cannot share this video: " + std::to_string(together) +
                      " of them share a guidance pass, which has only " + std::to_string(most) + what,
                  "use at most " + std::to_string(most) + " ranks" + even);
}

at::Tensor gather_slices(const at::Tensor& x, int64_t dim, int64_t whole, Group* group) {
  if (group == nullptr) return x;
  std::vector<at::Tensor> slices;
  for (int64_t rank = 0; rank < group->size(); ++rank) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape[static_cast<size_t>(dim)] = slice_of(whole, group->size(), rank).count;
    slices.push_back(at::empty(shape, x.options().memory_format(at::MemoryFormat::Contiguous)));
  }
  group->all_gather(x.contiguous(), slices);
  return at::cat(slices, dim);
}

bool any_rank(bool says, Group* group, at::Device device) {
  if (group == nullptr) return says;
  const at::Tensor flag = at::full({1}, says ? 1 : 0, at::TensorOptions().dtype(at::kLong).device(device));
  group->all_reduce_max(flag);
  const bool any = flag.item<int64_t>() != 0;
  group->check();
  return any;
}

}  // namespace sparsereel::models
