// Retries work of a VAE that runs out of GPU memory.
#pragma once

#include <functional>

namespace sparsereel::models {

/// Calls work(tiled). If that runs out of GPU memory, calls make_room() and then `work` once more, in tiles if
/// `may_tile`; `tiled` then becomes true. Does not retry if make_room() returns that nothing was freed and tiling
/// changes nothing. Other exceptions pass through.
void work_or_retry_tiled(bool& tiled, bool may_tile, const std::function<void(bool tiled)>& work,
                         const std::function<bool()>& make_room);

}  // namespace sparsereel::models
