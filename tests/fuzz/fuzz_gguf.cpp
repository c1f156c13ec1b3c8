// libFuzzer entry of fuzz_gguf (targets.h).
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sparsereel::test::fuzz_gguf(std::as_bytes(std::span(data, size)));
  return 0;
}
