// libFuzzer entry of fuzz_request (targets.h).
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sparsereel::test::fuzz_request(std::as_bytes(std::span(data, size)));
  return 0;
}
