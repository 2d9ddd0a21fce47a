// Answers that are cut behind each of their events and go on at another worker: both parts
// together are the uncut answer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"

namespace llorch::test {

struct CutCase {
  std::string name;
  std::string path;   // "/execute", …
  json::Object body;  // with a seed; asks for a stream where it is OpenAI's
  std::size_t choices = 1;
};

// Greedy and seeded, stop strings, penalties, JSON by schema, tool calls, thinking, n = 3,
// log-probabilities: what the worker at `url` can be asked. Its chat template opens the thinking
// where a message asks for it (kCutTemplate).
std::vector<CutCase> cut_cases(const std::string& url);

extern const char* const kCutTemplate;

// Asks `first`, cuts its answer at each place and lets `second` go on. Returns at how many.
std::size_t check_cuts(const CutCase& one, const std::string& first, const std::string& second);

}  // namespace llorch::test
