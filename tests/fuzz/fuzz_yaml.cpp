// libFuzzer entry of fuzz_yaml (yaml_target.h).
#include "tests/fuzz/yaml_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sparsereel::test::fuzz_yaml(std::as_bytes(std::span(data, size)));
  return 0;
}
