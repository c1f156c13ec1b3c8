// The error of a call that cannot run, with cause and remedy for people and a status for the C interface.
#pragma once

#include <string>
#include <utility>

#include "attention/include/sparsereel/attention.h"
#include "hilbert/error.h"

namespace sparsereel::attention {

class Refusal : public Error {
 public:
  Refusal(sparsereel_status status, const std::string& cause, std::string remedy)
      : Error(is_of_the_device(status) ? ErrorKind::failed : ErrorKind::bad_input, "attention: " + cause,
              std::move(remedy)),
        status_(status) {}

  sparsereel_status status() const { return status_; }

 private:
  static bool is_of_the_device(sparsereel_status status) {
    return status == SPARSEREEL_CUDA_ERROR || status == SPARSEREEL_EARLIER_CUDA_ERROR;
  }

  sparsereel_status status_;
};

}  // namespace sparsereel::attention
