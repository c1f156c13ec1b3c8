// One exchange there and one back. What a rank gets of a token is one row: its heads of q, of k and of v, and the
// token's moments. Rows arrive where they stay, and where the heads are shared evenly one pass over memory makes them.
#include "models/dit/head_exchange.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMomentBytes = 16;  // mean and 1 / deviation of q and of k in fp32; rows stay aligned for the kernels

/// [B, N, 3, heads, head_dim]: a view where they are parts of one projection, as families have them.
at::Tensor together(const AttentionRows& rows) {
  const auto& [q, k, v, q_moments, k_moments] = rows;
  const auto place = [](const at::Tensor& x) { return static_cast<const uint8_t*>(x.const_data_ptr()); };
  const int64_t apart = (place(k) - place(q)) / q.element_size();
  const bool one = q.is_alias_of(k) && q.is_alias_of(v) && q.strides() == k.strides() && q.strides() == v.strides() &&
                   apart > 0 && place(v) - place(k) == place(k) - place(q);
  if (!one) return at::stack({q, k, v}, 2);
  return q.as_strided({q.size(0), q.size(1), 3, q.size(2), q.size(3)},
                      {q.stride(0), q.stride(1), apart, q.stride(2), q.stride(3)});
}

/// [N, B, the bytes of both in the dtype of q]; undefined where there are none.
at::Tensor packed_moments(const AttentionRows& rows) {
  if (!rows.q_moments.defined()) return {};
  return at::cat({rows.q_moments, rows.k_moments}, 2).view(rows.q.scalar_type()).transpose(0, 1);
}

}  // namespace

HeadExchange::HeadExchange(Group& group, const AttentionRows& like, int64_t video_tokens, int64_t text_tokens)
    : group_(group),
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
}

at::Tensor HeadExchange::empty_rows(const std::vector<int64_t>& sizes, int64_t rank) const {
  std::vector<int64_t> shape = sizes;
  shape.push_back(head_elements(rank) + moment_elements_);
  return at::empty(shape, options_);
}

/// What `rank` gets of some tokens, qkv [B, N, 3, heads, head_dim] and moments [N, B, ..], to [N, B, row].
void HeadExchange::put(const at::Tensor& to, const at::Tensor& qkv, const at::Tensor& moments, int64_t rank) const {
  const Slice some = heads(rank);
  to.narrow(2, 0, head_elements(rank))
      .unflatten(2, {3, some.count, head_dim_})
      .copy_(qkv.narrow(3, some.first, some.count).transpose(0, 1));
  if (moments.defined()) to.narrow(2, head_elements(rank), moment_elements_).copy_(moments);
}

/// Of this rank's tokens, a row for each rank.
std::vector<at::Tensor> HeadExchange::sent(const at::Tensor& qkv, const at::Tensor& moments) const {
  const int64_t ranks = group_.size(), batch = qkv.size(0), count = qkv.size(1);
  std::vector<at::Tensor> rows;
  if (heads_ % ranks != 0) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      rows.push_back(empty_rows({count, batch}, rank));
      put(rows.back(), qkv, moments, rank);
    }
    return rows;
  }
  const at::Tensor all = empty_rows({ranks, count, batch}, 0);
  all.narrow(3, 0, head_elements(0))
      .unflatten(3, {3, heads_ / ranks, head_dim_})
      .copy_(qkv.unflatten(3, {ranks, -1}).permute({3, 1, 0, 2, 4, 5}));
  if (moments.defined()) all.narrow(3, head_elements(0), moment_elements_).copy_(moments);
  return all.unbind(0);
}

AttentionRows HeadExchange::to_heads(const AttentionRows& rows) const {
  const at::Tensor qkv = together(rows), moments = packed_moments(rows);
  const auto some = [](const at::Tensor& x, int64_t dim, const Slice& tokens) {
    return x.defined() ? x.narrow(dim, tokens.first, tokens.count) : x;
  };
  const Slice video = {.first = 0, .count = tokens(group_.rank()).count},
              text = {.first = video.count, .count = text_tokens_};
  const at::Tensor all = empty_rows({video_tokens_ + text_tokens_, qkv.size(0)}, group_.rank());
  std::vector<at::Tensor> receive;
  for (int64_t rank = 0; rank < group_.size(); ++rank)
    receive.push_back(all.narrow(0, tokens(rank).first, tokens(rank).count));
  group_.all_to_all(sent(some(qkv, 1, video), some(moments, 0, video)), receive);
  if (text_tokens_ > 0)
    put(all.narrow(0, video_tokens_, text_tokens_), some(qkv, 1, text), some(moments, 0, text), group_.rank());
  return rows_in(all);
}

/// Views of all [N, B, row], but for the moments.
AttentionRows HeadExchange::rows_in(const at::Tensor& all) const {
  const int64_t size = head_elements(group_.rank());
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
  const int64_t own = tokens(group_.rank()).count + text_tokens_;
  std::vector<at::Tensor> send, receive;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const at::Tensor video = x.narrow(1, tokens(rank).first, tokens(rank).count);
    send.push_back(text_tokens_ > 0 ? at::cat({video, text}, 1) : video.contiguous());
    receive.push_back(at::empty({x.size(0), own, heads(rank).count, head_dim_}, options_));
  }
  group_.all_to_all(send, receive);
  return at::cat(receive, 2);
}

}  // namespace sparsereel::models
