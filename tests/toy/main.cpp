// The main() of the tests' program, which adds the toy family and the option --draft to the usual program.
#include "app/program.h"
#include "tests/toy/toy.h"

int main(int argc, char** argv) {
  using namespace sparsereel::test;
  return sparsereel::app::run_program(argc, argv,
                                      {.families = {toy_family()}, .loaders = toy_loaders(), .fields = toy_fields()});
}
