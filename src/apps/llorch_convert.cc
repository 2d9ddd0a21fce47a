// llorch-convert: writes models as GGUF files, quantised.
#include <cstdlib>

#include "tools/convert_command.h"

int main(int argc, char** argv) {
  return llorch::tools::run_convert(argc, argv, std::getenv("NO_COLOR"));
}
