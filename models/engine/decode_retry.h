// What to do when decoding runs out of GPU memory.
#pragma once

#include <functional>

namespace sparsereel::models {

/// decode(tiled). Where that runs out of GPU memory: once more after make_room(), in tiles if it `may_tile`, and
/// `tiled` says so; unless make_room() returns that there was nothing to free and tiles change nothing. Other failures
/// pass through.
void decode_or_retry_tiled(bool& tiled, bool may_tile, const std::function<void(bool tiled)>& decode,
                           const std::function<bool()>& make_room);

}  // namespace sparsereel::models
