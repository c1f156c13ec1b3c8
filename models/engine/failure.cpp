// Converts exceptions of the standard library and of libtorch to errors that a user understands.
#include "models/engine/failure.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <new>
#include <string>
#include <string_view>

#include "models/request/run.h"

namespace sparsereel::models {
namespace {

constexpr const char* kHostMemory = "out of memory of the host (not the GPU)";
constexpr const char* kHostMemoryRemedy = "choose a smaller size, fewer frames or vae_tiling on, or end other programs";
constexpr const char* kGpuMemoryRemedy =
    "choose a smaller size, fewer frames, offload, weights fp8 or guidance_passes in-turn";
constexpr const char* kReport = "report this with the command line and 'sparsereel doctor'";

/// Returns true if host memory ran out. Only the text of libtorch's error says so.
bool out_of_host_memory(const c10::Error& error) {
  return std::string_view(error.what_without_backtrace()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const Cancelled&) {
    return {ErrorKind::cancelled, "nothing half-written is left behind",
            "run the same command again: the same seed gives the same video"};
  } catch (const std::bad_alloc&) {
    return run_failure(kHostMemory, kHostMemoryRemedy);
  } catch (const c10::OutOfMemoryError& error) {
    return run_failure(std::string("out of GPU memory: ") + error.what_without_backtrace(), kGpuMemoryRemedy);
  } catch (const c10::Error& error) {
    if (out_of_host_memory(error)) return run_failure(kHostMemory, kHostMemoryRemedy);
    return run_failure(std::string("libtorch failed: ") + error.what_without_backtrace(), kReport);
  } catch (const std::filesystem::filesystem_error& error) {
    return bad_input(error.path1().string() + ": " + error.code().message(), "check the path and its permissions");
  } catch (const std::exception& error) {
    return run_failure(error.what(), kReport);
  } catch (...) {
    return run_failure("an exception of unknown type", kReport);
  }
}

}  // namespace sparsereel::models
