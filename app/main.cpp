#include "app/program.h"

int main(int argc, char** argv) {
  return sparsereel::app::run_program(argc, argv);
}
