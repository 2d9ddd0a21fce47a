// llorch-tokenize: shows how a model cuts text into tokens.
#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/tokenize_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_tokenize(argc, argv, std::getenv("NO_COLOR"));
}
