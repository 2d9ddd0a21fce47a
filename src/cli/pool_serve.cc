#include "cli/pool_command.h"

namespace llorch::cli {

void add_serve_commands([[maybe_unused]] CLI::App& app, [[maybe_unused]] PoolContext& context) {}

}  // namespace llorch::cli
