// "Did you mean …?": names that a mistyped one may have been meant for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::base {

// At most `max_count` of the candidates, the nearest first: those a few keystrokes away (a third of
// the name's length), or that begin with it or contain it.
std::vector<std::string> similar_names(std::string_view name,
                                       const std::vector<std::string_view>& candidates,
                                       std::size_t max_count);

// "; did you mean a, or b?" with the nearest names, or nothing where none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates);
// The same in brackets, for the middle of a sentence: " (did you mean a, or b?)".
std::string did_you_mean_inside(std::string_view name,
                                const std::vector<std::string_view>& candidates);

// What is wrong with words that a command line has no place for, in the order they stand there: an
// option that is none, with the nearest of `options` ("--port"), else the words. Empty: there are
// none.
std::string tell_unexpected_words(const std::vector<std::string>& words,
                                  const std::vector<std::string>& options);
// What a CLI::ParseError says; of words left over the sentence above, as its own has them from the
// last.
template <class ExtrasError, class App, class ParseError>
std::string tell_problem(const App& app, const ParseError& error) {
  if (dynamic_cast<const ExtrasError*>(&error) == nullptr) return error.what();
  std::vector<std::string> options;
  for (const auto* option : app.get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const std::string problem = tell_unexpected_words(app.remaining(), options);
  return problem.empty() ? error.what() : problem;
}

}  // namespace llorch::base
