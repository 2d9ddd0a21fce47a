#include "cli/pool_command.h"

namespace llorch::cli {

void add_download_commands([[maybe_unused]] CLI::App& parent,
                           [[maybe_unused]] PoolContext& context) {}

}  // namespace llorch::cli
