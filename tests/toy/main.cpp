// The main() of the tests' program, which has one more model family, the toy family, and one more option.
#include "app/program.h"
#include "tests/toy/toy.h"

int main(int argc, char** argv) {
  using namespace sparsereel::test;
  return sparsereel::app::run_program(argc, argv,
                                      {.families = {toy_family()}, .loaders = toy_loaders(), .fields = toy_fields()});
}
