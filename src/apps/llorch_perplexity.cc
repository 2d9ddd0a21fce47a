// llorch-perplexity: compares models on a text.
#include <cstdlib>

#include "base/standard_streams.h"
#include "tools/perplexity_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::tools::run_perplexity(argc, argv, std::getenv("NO_COLOR"));
}
