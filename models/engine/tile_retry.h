// Retries work of a VAE that runs out of GPU memory.
#pragma once

#include <functional>
#include <string>

namespace sparsereel::models {

/// Calls work(tiled). If that runs out of GPU memory, calls make_room() and then `work` once more. The second call
/// works in tiles if `may_tile` is true; `tiled` is then set to true. Rethrows the error if make_room() returns false
/// (it has freed nothing) and tiles cannot help either. Other exceptions pass through.
void work_or_retry_tiled(bool& tiled, bool may_tile, const std::function<void(bool tiled)>& work,
                         const std::function<bool()>& make_room);

/// Does the same for work that has no tiles: calls work() again if make_room() has freed anything. Otherwise throws
/// Error, which says what ran out of GPU memory ("decoding") and what helps.
void work_or_retry(const std::string& what, const std::string& remedy, const std::function<void()>& work,
                   const std::function<bool()>& make_room);

}  // namespace sparsereel::models
