// llorch-perplexity: compares models on a text.
#include <cstdlib>

#include "tools/perplexity_command.h"

int main(int argc, char** argv) {
  return llorch::tools::run_perplexity(argc, argv, std::getenv("NO_COLOR"));
}
