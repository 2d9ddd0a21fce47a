// llorch-tokenize: shows how a model cuts text into tokens.
#include <cstdlib>

#include "tools/tokenize_command.h"

int main(int argc, char** argv) {
  return llorch::tools::run_tokenize(argc, argv, std::getenv("NO_COLOR"));
}
