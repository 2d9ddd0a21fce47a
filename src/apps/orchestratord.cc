// orchestratord: takes jobs for all hosts and decides who runs them.
#include <cstdlib>

#include "base/standard_streams.h"
#include "orchestrator/run.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  return llorch::orchestrator::run_orchestrator("orchestratord",
                                                {argv + (argc > 0 ? 1 : 0), argv + argc},
                                                [](const char* name) { return std::getenv(name); });
}
