// One retry; see decode_retry.h.
#include "models/decode_retry.h"

#include <c10/util/Exception.h>

namespace sparsereel::models {

at::Tensor decode_or_retry_tiled(bool& tiled, bool may_tile, const std::function<at::Tensor(bool tiled)>& decode,
                                 const std::function<void()>& make_room) {
  try {
    return decode(tiled);
  } catch (const c10::OutOfMemoryError&) {
    if (tiled || !may_tile) throw;
  }
  // Outside of the handler, where the first attempt's tensors are gone.
  make_room();
  tiled = true;
  return decode(true);
}

}  // namespace sparsereel::models
