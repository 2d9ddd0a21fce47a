// llorch-convert: writes models as GGUF files, quantised.
#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/convert_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_convert(argc, argv, std::getenv("NO_COLOR"));
}
