// Looking into weight files in a process of its own. Weight files are hostile input, and one that
// is cut short while it is mapped ends whoever reads it: so the program that lives long never does.
#pragma once

#include <filesystem>
#include <string>

#include "base/confinement.h"
#include "base/result.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

// What the files at an absolute path say of themselves: everything that describe_weights fills, a
// name, and `files` with their relative paths alone. A confined child with limits in time and
// memory reads them: `llorch-pool look`, beside our own program. InvalidArgument for what is
// neither a file nor a folder, Conflict when a file shrank while it was read, Corrupt when the
// child gave up.
Result<contract::ModelEntry> look_into(const std::filesystem::path& path);

// The child's whole life: prints what it found as one line of JSON. Returns its exit code.
int run_look(const std::filesystem::path& path);

// Lets a confined process read a model: a folder with everything below; or a file, the other parts
// of it, and what lies beside it in Hugging Face layout. Links lead where they lead now.
void allow_model(const std::filesystem::path& model, base::ConfinementRules& rules);

}  // namespace llorch::catalog
