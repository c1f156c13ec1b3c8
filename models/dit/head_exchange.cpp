// One exchange there and one back. What a rank gets of a token is one row: its heads of q, of k and of v, and the
// token's moments. Rows arrive where they stay; where ranks reach each other's memory, one launch puts them there.
#include "models/dit/head_exchange.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMomentBytes = 16;  // mean and 1 / deviation of q and of k in fp32; rows stay aligned for the kernels
constexpr int64_t kAlignment = 256;   // of what a window holds

int64_t window_bytes(const std::vector<int64_t>& sizes, int64_t element) {
  const int64_t bytes = c10::multiply_integers(sizes) * element;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// [N, B, the bytes of both in the dtype of q]; undefined where there are none.
at::Tensor packed_moments(const AttentionRows& rows) {
  if (!rows.q_moments.defined()) return {};
  return at::cat({rows.q_moments, rows.k_moments}, 2).view(rows.q.scalar_type()).transpose(0, 1);
}

}  // namespace

HeadExchange::HeadExchange(Group& group, const AttentionRows& like, int64_t video_tokens, int64_t text_tokens)
    : group_(group),
      batch_(like.q.size(0)),
      video_tokens_(video_tokens),
      text_tokens_(text_tokens),
      heads_(like.q.size(2)),
      head_dim_(like.q.size(3)),
      moment_elements_(like.q_moments.defined() ? kMomentBytes / like.q.element_size() : 0),
      options_(like.q.options().memory_format(at::MemoryFormat::Contiguous)) {
  if (heads_ < group.size())
    throw bad_input(std::to_string(group.size()) + " ranks share the tokens of a video of " + std::to_string(heads_) +
                        " attention heads",
                    "use at most as many ranks");
  if (like.k.size(2) != heads_)
    throw bad_input("several ranks and attention whose keys have fewer heads than its queries", "use one rank");
  int64_t there = 0, back = 0;  // bytes of the rank that needs the most
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    there = std::max(there, window_bytes(rows_of_heads(rank), like.q.element_size()));
    back = std::max(back, window_bytes(rows_of_tokens(rank), like.q.element_size()));
  }
  tokens_offset_ = there;
  windows_ = group.windows(there + back, like.q.device());
}

std::vector<int64_t> HeadExchange::rows_of_heads(int64_t rank) const {
  return {video_tokens_ + text_tokens_, batch_, 3 * heads(rank).count * head_dim_ + moment_elements_};
}

std::vector<int64_t> HeadExchange::rows_of_tokens(int64_t rank) const {
  return {batch_, tokens(rank).count + text_tokens_, heads_, head_dim_};
}

at::Tensor HeadExchange::deliver(const Whole& whole, int64_t offset) const {
  return windows_ != nullptr ? deliver_by_windows(whole, offset) : deliver_by_messages(whole);
}

/// What stays with this rank comes last: links have begun by then, and each rank begins with another one.
at::Tensor HeadExchange::deliver_by_windows(const Whole& whole, int64_t offset) const {
  const auto in_window = [&](int64_t rank) {
    const std::vector<int64_t> sizes = whole.sizes(rank);
    const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(options_.dtype().itemsize());
    return windows_->of(rank).narrow(0, offset, bytes).view(c10::typeMetaToScalarType(options_.dtype())).view(sizes);
  };
  Copies copies;
  for (int64_t i = 1; i <= group_.size(); ++i) {
    const int64_t rank = (group_.rank() + i) % group_.size();
    whole.fill(whole.part(in_window(rank), group_.rank()), rank, copies);
  }
  const at::Tensor own = in_window(group_.rank());
  if (whole.fill_own) whole.fill_own(own, copies);
  windows_->exchange([&] { copy_all(copies); });
  return own;
}

/// Parts that lie apart in the whole are copied there once they have come.
at::Tensor HeadExchange::deliver_by_messages(const Whole& whole) const {
  const at::Tensor own = at::empty(whole.sizes(group_.rank()), options_), nothing = at::empty({0}, options_);
  std::vector<at::Tensor> send, receive;
  Copies before, after;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const at::Tensor part = whole.part(own, rank);
    if (rank == group_.rank()) {
      whole.fill(part, rank, before);
      send.push_back(nothing);
      receive.push_back(nothing);
      continue;
    }
    const at::Tensor theirs = at::empty(whole.sizes(rank), options_.device(at::kMeta));
    send.push_back(at::empty(whole.part(theirs, group_.rank()).sizes(), options_));
    whole.fill(send.back(), rank, before);
    receive.push_back(part.is_contiguous() ? part : at::empty(part.sizes(), options_));
    if (!part.is_contiguous()) after.push_back({.to = part, .from = receive.back()});
  }
  if (whole.fill_own) whole.fill_own(own, before);
  copy_all(before);
  group_.all_to_all(send, receive);
  copy_all(after);
  return own;
}

/// What `rank` gets of some tokens' rows to [N, B, row].
void HeadExchange::put(const at::Tensor& to, const AttentionRows& rows, const at::Tensor& moments, int64_t rank,
                       Copies& copies) const {
  const Slice some = heads(rank);
  const int64_t each = some.count * head_dim_;
  int64_t first = 0;
  for (const at::Tensor* x : {&rows.q, &rows.k, &rows.v}) {
    copies.push_back({.to = to.narrow(2, first, each).unflatten(2, {some.count, head_dim_}),
                      .from = x->narrow(2, some.first, some.count).transpose(0, 1)});
    first += each;
  }
  if (moments.defined()) copies.push_back({.to = to.narrow(2, first, moment_elements_), .from = moments});
}

AttentionRows HeadExchange::to_heads(const AttentionRows& rows) const {
  const at::Tensor moments = packed_moments(rows);
  const auto put_from = [&](int64_t first, const at::Tensor& to, int64_t rank, Copies& copies) {
    const auto some = [&](const at::Tensor& x) { return x.narrow(1, first, to.size(0)); };
    put(to, {.q = some(rows.q), .k = some(rows.k), .v = some(rows.v)},
        moments.defined() ? moments.narrow(0, first, to.size(0)) : moments, rank, copies);
  };
  const int64_t own = group_.rank();
  return rows_in(
      deliver({.sizes = [this](int64_t rank) { return rows_of_heads(rank); },
               .part = [this](const at::Tensor& all,
                              int64_t maker) { return all.narrow(0, tokens(maker).first, tokens(maker).count); },
               .fill = [&](const at::Tensor& part, int64_t rank, Copies& copies) { put_from(0, part, rank, copies); },
               .fill_own =
                   [&](const at::Tensor& all, Copies& copies) {
                     put_from(tokens(own).count, all.narrow(0, video_tokens_, text_tokens_), own, copies);
                   }},
              0));
}

/// Views of all [N, B, row], but for the moments.
AttentionRows HeadExchange::rows_in(const at::Tensor& all) const {
  const int64_t size = 3 * heads().count * head_dim_;
  const at::Tensor qkv = all.narrow(2, 0, size).unflatten(2, {3, -1, head_dim_}).transpose(0, 1);
  AttentionRows rows{.q = qkv.select(2, 0), .k = qkv.select(2, 1), .v = qkv.select(2, 2)};
  if (moment_elements_ == 0) return rows;
  const at::Tensor moments =
      all.narrow(2, size, moment_elements_).unflatten(2, {2, -1}).permute({2, 1, 0, 3}).contiguous().view(at::kFloat);
  rows.q_moments = moments[0];
  rows.k_moments = moments[1];
  return rows;
}

at::Tensor HeadExchange::to_tokens(const at::Tensor& x) const {
  const at::Tensor text = x.narrow(1, video_tokens_, text_tokens_);
  return deliver({.sizes = [this](int64_t rank) { return rows_of_tokens(rank); },
                  .part = [this](const at::Tensor& all,
                                 int64_t maker) { return all.narrow(2, heads(maker).first, heads(maker).count); },
                  .fill =
                      [&](const at::Tensor& part, int64_t rank, Copies& copies) {
                        const auto [first, count] = tokens(rank);
                        copies.push_back({.to = part.narrow(1, 0, count), .from = x.narrow(1, first, count)});
                        copies.push_back({.to = part.narrow(1, count, text_tokens_), .from = text});
                      },
                  .fill_own = {}},
                 tokens_offset_);
}

}  // namespace sparsereel::models
