// Exchanges data before and after attention. Before attention, a rank receives one row for each token: q, k and v of
// the rank's heads, and the token's moments. Rows are written directly to their final place.
#include "models/transformer/head_exchange.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

// Four fp32 numbers: mean and 1 / deviation of q and k. 16 bytes keep rows aligned for the kernels.
constexpr int64_t kMomentBytes = 16;
constexpr int64_t kAlignment = 256;  // of tensors in a window, in bytes

int64_t element_size(const at::TensorOptions& options) {
  return static_cast<int64_t>(options.dtype().itemsize());
}

int64_t bytes_of(const std::vector<int64_t>& sizes, const at::TensorOptions& options) {
  return c10::multiply_integers(sizes) * element_size(options);
}

}  // namespace

HeadExchange::HeadExchange(Group& group, const Shape& shape)
    : group_(group),
      shape_(shape),
      moment_elements_(shape.has_moments ? kMomentBytes / element_size(shape.options) : 0) {
  if (shape.heads < group.size())
    throw bad_input(std::to_string(group.size()) + " ranks cannot share a video of only " +
                        std::to_string(shape.heads) + " attention heads",
                    "use at most one rank for each attention head");
  int64_t there = 0, back = 0;  // the most bytes that any rank needs for to_heads(), and for to_tokens()
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    there = std::max(there, bytes_of(rows_of_heads(rank), shape.options));
    back = std::max(back, bytes_of(rows_of_tokens(rank), shape.options));
  }
  const auto aligned = [](int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  windows_ = group.windows(aligned(there) + aligned(back), shape.options.device());
  // to_tokens() writes to the end of the windows, whatever the shape. Otherwise to_heads() of a call with longer text
  // could overwrite the result of a call with shorter text, which a peer may still read.
  if (windows_ != nullptr) tokens_offset_ = windows_->of(group.rank()).numel() - aligned(back);
}

std::vector<int64_t> HeadExchange::rows_of_heads(int64_t rank) const {
  return {shape_.video_tokens + shape_.text_tokens, shape_.batch,
          3 * heads(rank).count * shape_.head_dim + moment_elements_};
}

std::vector<int64_t> HeadExchange::rows_of_tokens(int64_t rank) const {
  return {shape_.batch, tokens(rank).count + shape_.text_tokens, shape_.heads, shape_.head_dim};
}

at::Tensor HeadExchange::in_window(int64_t rank, const std::vector<int64_t>& sizes, int64_t offset) const {
  return windows_->of(rank)
      .narrow(0, offset, bytes_of(sizes, shape_.options))
      .view(c10::typeMetaToScalarType(shape_.options.dtype()))
      .view(sizes);
}

/// Each rank begins with the rank after it, so that no two ranks send to the same rank at once. A rank's own part needs
/// no link, so it comes last, when the links are already busy with the others.
at::Tensor HeadExchange::deliver(const Whole& whole, int64_t offset, CopiesBeside& beside) const {
  if (windows_ == nullptr) return deliver_by_messages(whole);
  Copies copies;
  at::Tensor own;
  for (int64_t i = 1; i <= group_.size(); ++i) {
    const int64_t rank = (group_.rank() + i) % group_.size();
    own = in_window(rank, whole.sizes(rank), offset);
    whole.fill(whole.part(own, group_.rank()), rank, copies);
  }
  if (whole.fill_own) whole.fill_own(own, copies);
  windows_->exchange([&] {
    copy_all(copies);
    beside.join();
  });
  return own;
}

/// Sends contiguous messages. If a part is not contiguous in the receiver's tensor, the receiver copies it to its place
/// after it has arrived.
at::Tensor HeadExchange::deliver_by_messages(const Whole& whole) const {
  const at::TensorOptions& options = shape_.options;
  const at::Tensor own = at::empty(whole.sizes(group_.rank()), options), nothing = at::empty({0}, options);
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
    const at::Tensor theirs = at::empty(whole.sizes(rank), options.device(at::kMeta));
    send.push_back(at::empty(whole.part(theirs, group_.rank()).sizes(), options));
    whole.fill(send.back(), rank, before);
    receive.push_back(part.is_contiguous() ? part : at::empty(part.sizes(), options));
    if (!part.is_contiguous()) after.push_back({.to = part, .from = receive.back()});
  }
  if (whole.fill_own) whole.fill_own(own, before);
  copy_all(before);
  group_.all_to_all(send, receive);
  copy_all(after);
  return own;
}

/// Returns a copy from x [B, N, heads, head_dim] to rows [n, B, row] of rank `rank`: that rank's heads, for n tokens
/// from `first` on. x holds queries (part 0), keys (1) or values (2).
StridedCopy HeadExchange::piece(const at::Tensor& rows, const at::Tensor& x, int64_t part, int64_t first,
                                int64_t rank) const {
  const Slice some = heads(rank);
  const int64_t width = some.count * shape_.head_dim;
  return {.to = rows.narrow(2, part * width, width).unflatten(2, {some.count, shape_.head_dim}),
          .from = x.narrow(1, first, rows.size(0)).narrow(2, some.first, some.count).transpose(0, 1)};
}

at::Tensor HeadExchange::made_by(const at::Tensor& rows, int64_t maker) const {
  return rows.narrow(0, tokens(maker).first, tokens(maker).count);
}

AttentionRows HeadExchange::to_heads(const std::function<at::Tensor(int64_t part)>& project,
                                     const std::function<at::Tensor(const at::Tensor& x)>& moments) const {
  const int64_t own = group_.rank(), count = tokens(own).count;
  CopiesBeside beside(shape_.options.device());
  std::vector<at::Tensor> made;
  for (int64_t part = 0; part < 3; ++part) {
    made.push_back(project(part));
    Copies copies;
    for (int64_t i = 1; i < group_.size() && windows_ != nullptr; ++i) {
      const int64_t rank = (own + i) % group_.size();
      const at::Tensor rows = made_by(in_window(rank, rows_of_heads(rank), 0), own);
      copies.push_back(piece(rows, made.back(), part, 0, rank));
    }
    beside.begin(copies);
  }
  at::Tensor packed;  // [N, B, moment_elements_]: the bytes of both moments, viewed in q's dtype
  if (shape_.has_moments)
    packed = at::cat({moments(made[0]), moments(made[1])}, 2).view(made[0].scalar_type()).transpose(0, 1);
  const auto fill = [&](const at::Tensor& rows, int64_t first, int64_t rank, Copies& copies) {
    if (windows_ == nullptr || rank == own)  // with windows, the loop above has sent q, k and v to the other ranks
      for (int64_t part = 0; part < 3; ++part)
        copies.push_back(piece(rows, made[static_cast<size_t>(part)], part, first, rank));
    if (packed.defined())
      copies.push_back({.to = rows.narrow(2, rows.size(2) - moment_elements_, moment_elements_),
                        .from = packed.narrow(0, first, rows.size(0))});
  };
  const Whole whole = {
      .sizes = [this](int64_t rank) { return rows_of_heads(rank); },
      .part = [this](const at::Tensor& all, int64_t maker) { return made_by(all, maker); },
      .fill = [&](const at::Tensor& part, int64_t rank, Copies& copies) { fill(part, 0, rank, copies); },
      .fill_own =
          [&](const at::Tensor& all, Copies& copies) {
            fill(all.narrow(0, shape_.video_tokens, shape_.text_tokens), count, own, copies);
          }};
  return views_of(deliver(whole, 0, beside));
}

/// Returns q, k and v as views of the rows `all` [N, B, row]. Moments are copied.
AttentionRows HeadExchange::views_of(const at::Tensor& all) const {
  const int64_t size = all.size(2) - moment_elements_;
  const at::Tensor qkv = all.narrow(2, 0, size).unflatten(2, {3, -1, shape_.head_dim}).transpose(0, 1);
  AttentionRows rows{.q = qkv.select(2, 0), .k = qkv.select(2, 1), .v = qkv.select(2, 2)};
  if (!shape_.has_moments) return rows;
  const at::Tensor moments =
      all.narrow(2, size, moment_elements_).unflatten(2, {2, -1}).permute({2, 1, 0, 3}).contiguous().view(at::kFloat);
  rows.q_moments = moments[0];
  rows.k_moments = moments[1];
  return rows;
}

at::Tensor HeadExchange::to_tokens(const at::Tensor& x) const {
  const int64_t text = shape_.text_tokens;
  const Whole whole = {
      .sizes = [this](int64_t rank) { return rows_of_tokens(rank); },
      .part = [this](const at::Tensor& all,
                     int64_t maker) { return all.narrow(2, heads(maker).first, heads(maker).count); },
      .fill =
          [&](const at::Tensor& part, int64_t rank, Copies& copies) {
            const auto [first, count] = tokens(rank);
            copies.push_back({.to = part.narrow(1, 0, count), .from = x.narrow(1, first, count)});
            copies.push_back({.to = part.narrow(1, count, text), .from = x.narrow(1, shape_.video_tokens, text)});
          },
      .fill_own = {}};
  CopiesBeside nothing(shape_.options.device());
  return deliver(whole, tokens_offset_, nothing);
}

}  // namespace sparsereel::models
