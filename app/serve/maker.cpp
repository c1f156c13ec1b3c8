// Names the reasons why there is no video.
#include "app/serve/maker.h"

#include "models/engine/failure.h"
#include "models/files/write_failure.h"
#include "models/request/run.h"

namespace sparsereel::app::serve {

MadeVideo outcome_of(const std::function<MadeVideo()>& make) {
  try {
    return make();
  } catch (const MakerLost&) {
    throw;
  } catch (const models::Cancelled&) {
    return {.code = "cancelled", .failure = Error(ErrorKind::cancelled, "the video was cancelled", "")};
  } catch (const models::DiskError& error) {
    return {.code = "disk_full", .failure = error};
  } catch (const Error& error) {
    return {.code = error.kind() == ErrorKind::bad_input ? "invalid_value" : "generation_failed", .failure = error};
  } catch (...) {
    return {.code = "generation_failed", .failure = models::as_error(std::current_exception())};
  }
}

}  // namespace sparsereel::app::serve
