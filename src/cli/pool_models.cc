#include "cli/pool_command.h"

namespace llorch::cli {

void add_models_commands([[maybe_unused]] CLI::App& parent, [[maybe_unused]] PoolContext& context) {
}

}  // namespace llorch::cli
