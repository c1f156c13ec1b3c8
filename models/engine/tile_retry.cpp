// Does work a second time if it runs out of GPU memory: in tiles, or after weights that it does not need are freed. The
// tensors of the first attempt are freed before the second.
#include "models/engine/tile_retry.h"

#include <c10/util/Exception.h>

#include <exception>

#include "hilbert/error.h"

namespace sparsereel::models {

void work_or_retry_tiled(bool& tiled, bool may_tile, const std::function<void(bool tiled)>& work,
                         const std::function<bool()>& make_room) {
  std::exception_ptr failure;
  try {
    work(tiled);
    return;
  } catch (const c10::OutOfMemoryError&) {
    failure = std::current_exception();
  }
  // Unwinding has freed the tensors of the first attempt by now.
  const bool more_room = make_room();
  if (!more_room && (tiled || !may_tile)) std::rethrow_exception(failure);
  tiled = tiled || may_tile;
  work(tiled);
}

void work_or_retry(const std::string& what, const std::string& remedy, const std::function<void()>& work,
                   const std::function<bool()>& make_room) {
  bool tiled = false;
  try {
    work_or_retry_tiled(
        tiled, /*may_tile=*/false, [&](bool) { work(); }, make_room);
  } catch (const c10::OutOfMemoryError& error) {
    throw run_failure(what + " ran out of GPU memory: " + error.what_without_backtrace(), remedy);
  }
}

}  // namespace sparsereel::models
