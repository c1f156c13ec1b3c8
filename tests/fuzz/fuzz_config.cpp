// libFuzzer entry of fuzz_config (targets.h).
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sparsereel::test::fuzz_config(std::as_bytes(std::span(data, size)));
  return 0;
}
