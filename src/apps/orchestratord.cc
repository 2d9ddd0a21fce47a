// orchestratord: takes jobs for all hosts and decides who runs them.
#include <cstdlib>

#include "orchestrator/run.h"

int main(int argc, char** argv) {
  return llorch::orchestrator::run_orchestrator("orchestratord",
                                                {argv + (argc > 0 ? 1 : 0), argv + argc},
                                                [](const char* name) { return std::getenv(name); });
}
