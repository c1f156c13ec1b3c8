// Exchanges rows at the edges of bands with an all-to-all, and gathers whole bands and their moments. Results are
// joined in the order of the ranks, so all ranks get the same bits.
#include "models/vae/row_split.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sparsereel::models {

RowSplit::RowSplit(Group& group, int64_t rows, at::Device device) : group_(group), rows_(rows) {
  std::vector<double> parts;
  for (int64_t rank = 0; rank < group.size(); ++rank)
    parts.push_back(static_cast<double>(slice_of(rows, group.size(), rank).count) / static_cast<double>(rows));
  parts_ = at::tensor(parts, at::kDouble).to(device);
}

/// Returns the number of rows of another rank's band if this rank's band has own_rows.
int64_t RowSplit::rows_of(int64_t rank, int64_t own_rows) const {
  return own_rows / own().count * slice_of(rows_, group_.size(), rank).count;
}

int64_t RowSplit::most(int64_t own) const {
  int64_t most = own;
  for (int64_t rank = 0; rank < group_.size(); ++rank) most = std::max(most, rows_of(rank, own));
  return most;
}

RowSplit::Neighbors RowSplit::neighbors(const at::Tensor& x) const {
  const auto rank = static_cast<size_t>(group_.rank()), ranks = static_cast<size_t>(group_.size());
  const at::Tensor none = at::empty({0}, x.options());
  std::vector<at::Tensor> send(ranks, none), receive(ranks, none);
  Neighbors result;
  const auto exchange_with = [&](size_t other, int64_t row, at::Tensor& theirs) {
    send[other] = x.narrow(1, row, 1).contiguous();
    theirs = receive[other] = at::empty(send[other].sizes(), x.options());
  };
  if (rank > 0) exchange_with(rank - 1, 0, result.above);
  if (rank + 1 < ranks) exchange_with(rank + 1, x.size(1) - 1, result.below);
  group_.all_to_all(send, receive);
  return result;
}

void RowSplit::fill_ends(const at::Tensor& framed, Outside outside) const {
  const int64_t last = framed.size(1) - 1;
  const Neighbors beside = neighbors(framed.narrow(1, 1, last - 1));
  const auto fill = [&](int64_t row, int64_t edge, const at::Tensor& there) {
    at::Tensor end = framed.narrow(1, row, 1);
    if (there.defined())
      end.copy_(there);
    else if (outside == Outside::its_edge)
      end.copy_(framed.narrow(1, edge, 1));
    else
      end.zero_();
  };
  fill(0, 1, beside.above);
  fill(last, last - 1, beside.below);
}

at::Tensor RowSplit::surrounded(const at::Tensor& x, Outside outside) const {
  at::Tensor framed = at::empty({x.size(0), x.size(1) + 2, x.size(2), x.size(3)}, x.options());
  framed.narrow(1, 1, x.size(1)).copy_(x);
  fill_ends(framed, outside);
  return framed;
}

/// Returns one uninitialized tensor for each rank, with the shape of that rank's part along `dim`. x is this
/// rank's part.
std::vector<at::Tensor> RowSplit::room_for_all(const at::Tensor& x, int64_t dim) const {
  std::vector<at::Tensor> pieces;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape[static_cast<size_t>(dim)] = rows_of(rank, x.size(dim));
    pieces.push_back(at::empty(shape, x.options().memory_format(at::MemoryFormat::Contiguous)));
  }
  return pieces;
}

at::Tensor RowSplit::whole(const at::Tensor& x) const {
  const std::vector<at::Tensor> pieces = room_for_all(x, 1);
  group_.all_gather(x.contiguous(), pieces);
  return at::cat(pieces, 1);
}

at::Tensor RowSplit::collected(const at::Tensor& x, int64_t dim) const {
  const at::Tensor none = at::empty({0}, x.options());
  std::vector<at::Tensor> send(static_cast<size_t>(group_.size()), none), receive = send;
  send.front() = x.contiguous();
  if (is_first()) receive = room_for_all(x, dim);
  group_.all_to_all(send, receive);
  return is_first() ? at::cat(receive, dim) : at::Tensor();
}

at::Tensor RowSplit::joined_moments(const at::Tensor& moments) const {
  std::vector<at::Tensor> pieces(static_cast<size_t>(group_.size()));
  for (at::Tensor& piece : pieces) piece = at::empty(moments.sizes(), moments.options().dtype(at::kLong));
  group_.all_gather(moments.contiguous().view(at::kLong), pieces);  // groups cannot exchange fp64 directly
  const at::Tensor all = at::stack(pieces, 1).view(at::kDouble);    // [2, ranks, ..]
  std::vector<int64_t> shape(static_cast<size_t>(moments.dim()), 1);
  shape.front() = group_.size();
  const at::Tensor parts = parts_.view(shape);
  const at::Tensor mean = (all[0] * parts).sum(0);
  return at::stack({mean, ((all[1] + (all[0] - mean).square()) * parts).sum(0)});
}

}  // namespace sparsereel::models
