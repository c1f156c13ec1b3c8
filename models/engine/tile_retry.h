// Retries work of a VAE that runs out of GPU memory.
#pragma once

#include <functional>

namespace sparsereel::models {

/// Calls work(tiled). If that runs out of GPU memory, calls make_room() and then `work` once more, in tiles if
/// `may_tile`; `tiled` then becomes true. If make_room() returns false, because nothing was freed, and tiles cannot
/// help either, rethrows the error. Other exceptions pass through.
void work_or_retry_tiled(bool& tiled, bool may_tile, const std::function<void(bool tiled)>& work,
                         const std::function<bool()>& make_room);

}  // namespace sparsereel::models
