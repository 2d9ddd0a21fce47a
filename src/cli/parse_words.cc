#include "cli/parse_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "base/similar_names.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

std::vector<CLI::App*> commands_of(CLI::App& app) {
  std::vector<CLI::App*> all = app.get_subcommands([](CLI::App* command) {
    return !command->get_group().empty();  // hidden ones are nobody's advice
  });
  return all;
}

bool has_option(const CLI::App& app, const std::string& word) {
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    if (at->get_option_no_throw(word) != nullptr) return true;
  return false;
}

std::string unknown_option(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    for (const CLI::Option* option : at->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return fmt::format("there is no option {}{}", base::quoted(word),
                     base::did_you_mean(word, views));
}

// What is wrong in the words, where that can be said better than by CLI11. Empty: it cannot.
std::string find_mistake(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* at = &app;
  std::string path;
  bool is_value = false;  // the word belongs to the option before it
  for (const std::string& word : words) {
    if (word == "--") return {};
    if (word.size() > 1 && word.starts_with('-')) {
      const std::string name = word.substr(0, word.find('='));
      if (name.starts_with("--") && !has_option(*at, name)) return unknown_option(*at, name);
      const CLI::Option* option = nullptr;
      for (const CLI::App* up = at; up != nullptr && option == nullptr; up = up->get_parent())
        option = up->get_option_no_throw(name);
      is_value = option != nullptr && option->get_expected_min() > 0 && name == word;
      continue;
    }
    if (std::exchange(is_value, false)) continue;
    const std::vector<CLI::App*> commands = commands_of(*at);
    if (commands.empty()) continue;  // its arguments
    const std::vector<CLI::App*> all = at->get_subcommands([](CLI::App*) { return true; });
    const auto next = std::find_if(all.begin(), all.end(), [&word](const CLI::App* command) {
      return command->get_name() == word;
    });
    if (next != all.end()) {
      at = *next;
      path += word + " ";
      continue;
    }
    std::vector<std::string_view> names;
    names.reserve(commands.size());
    for (const CLI::App* command : commands) names.push_back(command->get_name());
    return fmt::format("there is no command {}{} (`{} {}--help` shows them)",
                       base::quoted(path + word), base::did_you_mean(word, names), app.get_name(),
                       path);
  }
  return {};
}

// CLI11's "--kv: q9 not in {f16,q8_0}" with the nearest of those; other words as they are.
std::string tell_value(std::string_view problem) {
  constexpr std::string_view kNotIn = " not in {";
  const std::size_t colon = problem.find(": ");
  const std::size_t list = problem.find(kNotIn);
  if (colon == std::string_view::npos || list == std::string_view::npos || list < colon ||
      !problem.ends_with('}'))
    return std::string(problem);
  const std::string_view value = problem.substr(colon + 2, list - colon - 2);
  std::string_view rest = problem.substr(list + kNotIn.size());
  rest.remove_suffix(1);
  std::vector<std::string_view> names;
  while (!rest.empty()) {
    names.push_back(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), names.back().size() + 1));
  }
  return fmt::format("{} is {}, expected {}{}", problem.substr(0, colon), base::quoted(value),
                     fmt::join(names, " or "), base::did_you_mean(value, names));
}

// The first of its arguments that is empty where it must name something: the id of a job, a host. A
// prompt may be; its command says better what an empty one means. Null: none.
const CLI::Option* find_empty_argument(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands())
    if (const CLI::Option* found = find_empty_argument(*command)) return found;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || option->get_name() == "PROMPT") continue;
    const std::vector<std::string>& values = option->results();
    if (std::find(values.begin(), values.end(), std::string()) != values.end()) return option;
  }
  return nullptr;
}

// What CLI11 says of words that it knows, with where help for them is.
std::string tell_rest(const CLI::App& app, std::string_view problem) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (std::vector<CLI::App*> parsed = app.get_subcommands(); !parsed.empty();
       parsed = at->get_subcommands()) {
    at = parsed.front();
    path += " " + at->get_name();
  }
  const bool has_no_command = problem == "A subcommand is required";
  return fmt::format("{}; `{} --help` {}", has_no_command ? "no command is named" : problem, path,
                     has_no_command ? "shows them" : "says more");
}

}  // namespace

std::optional<int> parse_words(CLI::App& app, std::vector<std::string> words) {
  const std::vector<std::string> in_order = words;
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
  try {
    app.parse(std::move(words));
    const CLI::Option* empty = find_empty_argument(app);
    if (empty == nullptr) return std::nullopt;
    complain(fmt::format("{} is empty", empty->get_name()));
    return kUsage;
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) == 0) return print(out.str());  // help and version
    std::string mistake = find_mistake(app, in_order);
    if (mistake.empty() && dynamic_cast<const CLI::ValidationError*>(&error) != nullptr)
      mistake = tell_value(error.what());
    if (mistake.empty() && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
      mistake = base::tell_unexpected_words(app.remaining(true), {});
    complain(mistake.empty() ? tell_rest(app, error.what()) : mistake);
    return kUsage;
  }
}

CLI::Validator url_rule() {
  return {[](const std::string& text) {
            const Result<http::Url> url = http::parse_url(text);
            return url.ok() ? std::string() : url.error().message;
          },
          ""};
}

std::string shell_word(std::string_view text) {
  const bool is_plain =
      !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("/._-+,:@").find(c) != std::string_view::npos;
      });
  if (is_plain) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    if (!word.empty()) words.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return words;
}

}  // namespace llorch::cli
