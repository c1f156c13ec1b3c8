// What to do when decoding runs out of GPU memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace sparsereel::models {

/// decode(tiled); where that runs out of GPU memory untiled and `may_tile`: make_room(), then decode(true), and `tiled`
/// says so. Other failures pass through.
at::Tensor decode_or_retry_tiled(bool& tiled, bool may_tile, const std::function<at::Tensor(bool tiled)>& decode,
                                 const std::function<void()>& make_room);

}  // namespace sparsereel::models
