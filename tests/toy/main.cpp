// The program with one more model family, the toy family, and the option that this family adds. Tests run it.
#include "app/program.h"
#include "tests/toy/toy.h"

int main(int argc, char** argv) {
  using namespace sparsereel::test;
  return sparsereel::app::run_program(argc, argv,
                                      {.families = {toy_family()}, .loaders = toy_loaders(), .fields = toy_fields()});
}
