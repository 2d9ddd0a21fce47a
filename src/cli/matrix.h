// What `llorch matrix` finds out: for each model, backend and host a cell with checks and figures.
// Values, their JSON, and what they mean beside an earlier run. No effects. Private to cli/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/measure.h"

namespace llorch::cli {

enum class CheckState : std::uint8_t { Passed, Failed, Skipped };
std::string_view name(CheckState state);  // "passed", "failed", "skipped"

struct CheckResult {
  std::string name;  // "plan", "load", "ids", …: see matrix_checks.cc
  CheckState state = CheckState::Skipped;
  std::string detail;  // what was seen; of a failed one what was expected, of a skipped one why

  friend bool operator==(const CheckResult&, const CheckResult&) = default;
};

// Which cell it is. The three together are its key.
struct CellName {
  std::string model;    // for people; never a path
  std::string backend;  // "cpu", "cuda"
  std::string host;     // "local": a worker of our own; else a host of the fleet

  friend bool operator==(const CellName&, const CellName&) = default;
};
std::string text_of(const CellName& name);  // "tinyllama on cpu of local"

struct MatrixCell {
  CellName name;
  std::string machine;       // that ran the command; empty: not known
  std::string made_at;       // RFC 3339; empty: not known
  std::string quant;         // of the weights, as the worker says
  std::string device_class;  // "cpu-avx512"
  std::string build;
  std::int64_t context = 0;
  std::int64_t parameters = 0;
  std::int64_t size_bytes = 0;
  bool is_random = false;  // weights that `llorch-convert --random` drew: of that shape, no more
  bool is_quick = false;   // made with fewer requests and repetitions
  std::vector<CheckResult> checks;
  std::vector<Figure> figures;
  std::vector<std::int32_t> ids;  // of one greedy answer, for comparing

  // Failed when a check is; skipped when nothing was tried.
  CheckState state() const;
  const CheckResult* find_check(std::string_view check) const;  // null: none of that name
  const Figure* find_figure(std::string_view figure) const;     // likewise
  std::size_t count(CheckState state) const;
};

struct MatrixResult {
  std::string version;
  std::string made_at;  // RFC 3339
  std::string machine;  // "AMD EPYC …, AVX-512, 2 cores"; of several the first
  std::vector<MatrixCell> cells;

  const MatrixCell* find(const CellName& name) const;  // the first of that name; null: none
  std::size_t count(CheckState state) const;           // cells
};

// Those whose cells were tried, in their order; the result's own where none was.
std::vector<std::string> machines_of(const MatrixResult& result);

// The cells of runs on several machines in one result, in the order of the runs. Of a cell that two
// runs made on one machine the later run's stays; one that a machine could not try at all is left
// out where another machine tried that model on that backend.
MatrixResult put_together(std::vector<MatrixResult> runs);

// Whether the cell's greedy ids are those that another backend of its host made of this model, as a
// check "agrees"; nothing: no other has made any. The arithmetic of two backends differs, so they
// may part where two tokens are nearly as likely; that they have not even the first in common is a
// failure, unless the weights are random and nothing is likely.
std::optional<CheckResult> compare_backends(const MatrixResult& result, const MatrixCell& cell);

json::Object to_json(const MatrixResult& result);
// Of a file that this program wrote; Corrupt says what is wrong with another.
Result<MatrixResult> parse_matrix(std::string_view text);

// --- beside an earlier run ---

enum class Change : std::uint8_t { Worse, Better, NotCompared };
std::string_view name(Change change);  // "worse", "better", "unlike"

struct Difference {
  CellName cell;         // of no model where it is about all of them
  std::string what;      // "decode_tps_16", "ids", "cancel in decode", "machine"
  std::string sentence;  // with both values and what would have been within the noise
  Change change = Change::Worse;

  bool is_regression() const { return change == Change::Worse; }
};
std::string where_of(const Difference& difference);  // "tinyllama on cpu of local", "all cells"

// What became worse by more than both runs' own noise, checks that passed before and fail or are
// skipped now, ids that are others on the same build and device; and what became better by as much.
// Figures are those of one machine, of the same amount of work (quick or whole) and of the same
// weights (real or random), or they are not compared, which is said; cells and figures that only
// the earlier one has are named.
std::vector<Difference> compare(const MatrixResult& now, const MatrixResult& before);
// The part by which a figure may be worse than before: twice what both runs saw of noise, and 3 %,
// but never more than half. What was measured once has a noise of 2 %.
double allowed_change(const Figure& now, const Figure& before);

}  // namespace llorch::cli
