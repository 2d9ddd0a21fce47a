// The matrix for people: a table in a terminal, a page of Markdown, a page of HTML. Pure. Private
// to cli/.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/matrix.h"

namespace llorch::cli {

// What is being done now.
struct MatrixMoment {
  CellName cell;
  std::string check;
  std::size_t number = 0;  // of the check
  std::size_t count = 1;   // checks
};

// Where a cell was tried: "local", "anna"; in a result of several machines "machine 2", "anna of
// machine 2", by the numbers of machines_of.
std::string place_of(const MatrixResult& result, const MatrixCell& cell);

// A row for each cell that is wanted: those of the result, the one that runs, those that wait.
// Where none is wanted, a row for each of the result.
// `now`: null when nothing runs.
std::string matrix_table(const MatrixResult& result, const std::vector<CellName>& wanted,
                         const MatrixMoment* now, bool color);
// The same for a screen of that size: the rows around what runs, lines cut at its right side, no
// colours.
std::string matrix_screen(const MatrixResult& result, const std::vector<CellName>& wanted,
                          const MatrixMoment& now, std::size_t width, std::size_t height);
// What failed and what was skipped, with the reasons; empty when there is nothing to say.
std::string matrix_remarks(const MatrixResult& result, bool color);

// A sentence for each model that two backends of a host, or two machines with the same weights,
// have answered: how many greedy ids they have in common. Their arithmetic differs, so fewer than
// all is no failure.
std::vector<std::string> agreements(const MatrixResult& result);

// A sentence for each backend of which no cell was tried, with the reason that most of them have.
std::vector<std::string> untried_backends(const MatrixResult& result);

// docs/MODEL_SUPPORT.md: what runs, how fast, what was not tried and why.
std::string matrix_markdown(const MatrixResult& result);

// One page without anything from elsewhere: numbers, charts, every check with what was seen. Light
// and dark as the reader's system is.
std::string matrix_html(const MatrixResult& result, const std::vector<Difference>& differences);

// "1.24 s", "870 ms", "171", "89.6 MiB": a figure without its unit where the column says it.
std::string figure_cell(const Figure* figure);

}  // namespace llorch::cli
