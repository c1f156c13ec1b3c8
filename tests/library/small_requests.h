// Code that the tests of libsparsereel share: a small model, a request, and a function that returns the error of a
// call.
#pragma once

#include <sparsereel.h>

#include <functional>
#include <string>

namespace sparsereel::test {

inline const std::string kModel = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";

inline VideoRequest small() {
  VideoRequest request;
  request.prompt = "a red circle";
  request.steps = 2;
  request.width = 32;
  return request;
}

inline Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure;
  }
  return {0, "no failure", ""};
}

}  // namespace sparsereel::test
