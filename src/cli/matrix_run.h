// Runs the matrix: one cell after another, each with a worker of its own or through the fleet.
// Private to cli/.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "cli/fleet_client.h"
#include "cli/host_door.h"
#include "cli/matrix.h"
#include "cli/matrix_checks.h"

namespace llorch::cli {

struct MatrixModel {
  std::string name;  // in the table
  std::string ref;   // "builtin", a path, or a name of the catalog
};
// "NAME=PATH", a path (its last part is the name) or a name of the catalog.
MatrixModel read_matrix_model(const std::string& word);

struct MatrixWish {
  std::vector<MatrixModel> models;
  std::vector<std::string> backends;
  std::vector<std::string> hosts;  // kLocalHost (a worker of our own), or of the fleet
  MatrixScale scale;
  bool fetches = false;  // what has a name and is not on this machine
  bool is_quick = false;
  // Where tokenizers of models are whose weights are drawn when they cannot be had; empty: none
  // are.
  std::filesystem::path tokenizers{};
};
std::vector<CellName> cells_of(const MatrixWish& wish);

struct MatrixPlace {
  base::Environment environment;
  base::Home home;
  std::filesystem::path programs;  // the folder of ours
  FleetTarget fleet;               // for hosts other than this one
};

// Told before each check of a cell: its number from 0, and how many there are.
using OnCheck = std::function<void(std::string_view check, std::size_t number, std::size_t count)>;

// Whatever happens is in the cell; nothing of it stays behind. After a stop the cell is not whole.
MatrixCell run_cell(const MatrixWish& wish, const CellName& name, const MatrixPlace& place,
                    const OnCheck& on_check, const std::stop_token& stop);

}  // namespace llorch::cli
