// llorch-pool: the command line of one host.
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/reader_watch.h"
#include "base/standard_streams.h"
#include "cli/pool_command.h"

int main(int argc, char** argv) {
  llorch::base::hold_standard_streams();
  std::optional<llorch::base::ReaderWatch> watch;
  if (std::getenv(llorch::base::kReaderVariable) != nullptr) {
    ::unsetenv(llorch::base::kReaderVariable);  // what is started here outlives the reader
    watch.emplace(STDOUT_FILENO);
  }
  return llorch::cli::run_llorch_pool(argc, argv,
                                      [](const char* name) { return std::getenv(name); });
}
