// One exchange there and one back. What a rank gets of a token is one row: its heads of q, of k and of v, and the
// token's moments, so that slices arrive where they stay.
#include "models/dit/head_exchange.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMomentBytes = 16;  // mean and 1 / deviation of q and of k in fp32; rows stay aligned for the kernels

/// The heads of some tokens in the place of [tokens, B, heads x head_dim].
void put_heads(const at::Tensor& to, const at::Tensor& x, const Slice& tokens, const Slice& heads) {
  to.unflatten(2, {heads.count, -1})
      .copy_(x.narrow(1, tokens.first, tokens.count).narrow(2, heads.first, heads.count).transpose(0, 1));
}

}  // namespace

HeadExchange::HeadExchange(Group& group, const AttentionRows& like, int64_t video_tokens, int64_t text_tokens)
    : group_(group),
      video_tokens_(video_tokens),
      text_tokens_(text_tokens),
      kv_heads_(like.k.size(2)),
      together_(like.q.size(2) / like.k.size(2)),
      head_dim_(like.q.size(3)),
      moment_elements_(like.q_moments.defined() ? kMomentBytes / like.q.element_size() : 0),
      own_tokens_(tokens(group.rank())) {
  if (kv_heads_ < group.size())
    throw bad_input(std::to_string(group.size()) + " ranks share the tokens of a video of " +
                        std::to_string(kv_heads_) + " attention heads",
                    "use at most as many ranks");
  own_heads_ = heads(group.rank());
}

Slice HeadExchange::heads(int64_t rank) const {
  const Slice kv = kv_heads(rank);
  return {.first = kv.first * together_, .count = kv.count * together_};
}

int64_t HeadExchange::row_elements(int64_t rank) const {
  return (heads(rank).count + 2 * kv_heads(rank).count) * head_dim_ + moment_elements_;
}

/// to [tokens, B, row] of `rank`.
void HeadExchange::put(const at::Tensor& to, const AttentionRows& rows, int64_t rank, const Slice& tokens) const {
  const Slice of_q = heads(rank), of_kv = kv_heads(rank);
  const int64_t q_size = of_q.count * head_dim_, kv_size = of_kv.count * head_dim_;
  put_heads(to.narrow(2, 0, q_size), rows.q, tokens, of_q);
  put_heads(to.narrow(2, q_size, kv_size), rows.k, tokens, of_kv);
  put_heads(to.narrow(2, q_size + kv_size, kv_size), rows.v, tokens, of_kv);
  if (moment_elements_ == 0) return;
  const at::Tensor moments = at::cat({rows.q_moments, rows.k_moments}, 2).narrow(1, tokens.first, tokens.count);
  to.narrow(2, q_size + 2 * kv_size, moment_elements_)
      .copy_(moments.contiguous().view(to.scalar_type()).transpose(0, 1));
}

AttentionRows HeadExchange::to_heads(const AttentionRows& rows) const {
  const int64_t batch = rows.q.size(0), text = text_tokens_;
  const auto empty = [&](int64_t tokens, int64_t rank) {
    return at::empty({tokens, batch, row_elements(rank)},
                     rows.q.options().memory_format(at::MemoryFormat::Contiguous));
  };
  const at::Tensor all = empty(video_tokens_ + text, group_.rank());
  std::vector<at::Tensor> send, receive;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    send.push_back(empty(own_tokens_.count, rank));
    put(send.back(), rows, rank, {.first = 0, .count = own_tokens_.count});
    receive.push_back(all.narrow(0, tokens(rank).first, tokens(rank).count));
  }
  group_.all_to_all(send, receive);
  if (text > 0)
    put(all.narrow(0, video_tokens_, text), rows, group_.rank(), {.first = own_tokens_.count, .count = text});
  return rows_in(all);
}

/// Views of all [N, B, row], but for the moments.
AttentionRows HeadExchange::rows_in(const at::Tensor& all) const {
  int64_t first = 0;
  const auto part = [&](int64_t elements) {
    const at::Tensor x = all.narrow(2, first, elements);
    first += elements;
    return x;
  };
  const auto heads = [&](int64_t count) { return part(count * head_dim_).unflatten(2, {count, -1}).transpose(0, 1); };
  const int64_t kv = own_heads_.count / together_;
  AttentionRows rows;
  rows.q = heads(own_heads_.count);
  rows.k = heads(kv);
  rows.v = heads(kv);
  if (moment_elements_ == 0) return rows;
  const at::Tensor moments = part(moment_elements_).transpose(0, 1).contiguous().view(at::kFloat);
  rows.q_moments = moments.narrow(2, 0, 2).contiguous();
  rows.k_moments = moments.narrow(2, 2, 2).contiguous();
  return rows;
}

at::Tensor HeadExchange::to_tokens(const at::Tensor& x) const {
  const at::Tensor text = x.narrow(1, video_tokens_, text_tokens_);
  std::vector<at::Tensor> send, receive;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const at::Tensor video = x.narrow(1, tokens(rank).first, tokens(rank).count);
    send.push_back(text_tokens_ > 0 ? at::cat({video, text}, 1) : video.contiguous());
    receive.push_back(at::empty({x.size(0), own_tokens_.count + text_tokens_, heads(rank).count, head_dim_},
                                x.options().memory_format(at::MemoryFormat::Contiguous)));
  }
  group_.all_to_all(send, receive);
  return at::cat(receive, 2);
}

}  // namespace sparsereel::models
