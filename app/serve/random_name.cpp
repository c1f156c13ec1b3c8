// Reads the system's random numbers.
#include "app/serve/random_name.h"

#include <sys/random.h>

#include <array>
#include <cstdint>
#include <cstdio>

#include "hilbert/error.h"

namespace sparsereel::app::serve {

std::string random_name() {
  std::array<uint8_t, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw run_failure("the system gives no random numbers", "allow the system call getrandom");
  std::string name;
  for (const uint8_t byte : bytes) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    name += digits.data();
  }
  return name;
}

}  // namespace sparsereel::app::serve
