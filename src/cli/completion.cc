#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/fleet_command.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"help(Examples:
  eval "$(llorch completion bash)"                     in ~/.bashrc
  llorch completion zsh > ~/.zfunc/_llorch             a folder of $fpath
  llorch completion fish > ~/.config/fish/completions/llorch.fish)help";

// A word that may stand next.
struct Choice {
  std::string word;
  std::string about;
};
// What may follow the commands named so far: " jobs submit", empty at the beginning.
struct Place {
  std::string path;
  std::vector<Choice> choices;
};

// The first line, without what a shell would read.
std::string about(const std::string& description) {
  std::string text = description.substr(0, description.find('\n'));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return c == '\'' || c == '"' || c == '\\' || c == '`' || c == '$' || c == ':'; },
      ' ');
  return text;
}

void add_places(const CLI::App& command, const std::string& path, std::vector<Place>& places) {
  const std::vector<const CLI::App*> below =
      command.get_subcommands([](const CLI::App* app) { return !app->get_group().empty(); });
  Place place{path, {}};
  for (const CLI::App* app : below)
    place.choices.push_back({app->get_name(), about(app->get_description())});
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      place.choices.push_back({"--" + name, about(option->get_description())});
  places.push_back(std::move(place));
  for (const CLI::App* app : below) add_places(*app, path + " " + app->get_name(), places);
}

// "' run'|' chat'|…": every place but the first.
std::string all_paths(const std::vector<Place>& places, std::string_view between) {
  std::string text;
  for (const Place& place : places) {
    if (place.path.empty()) continue;
    text += fmt::format("{}'{}'", text.empty() ? "" : between, place.path);
  }
  return text;
}

std::string for_bash(const std::vector<Place>& places) {
  std::string text =
      "# bash completion for llorch; made by `llorch completion bash`\n_llorch() {\n";
  text += "  local here='' word i\n";
  text += "  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=\"$here ${COMP_WORDS[i]}\"\n";
  text +=
      fmt::format("    case \"$word\" in {}) here=$word ;; esac\n  done\n", all_paths(places, "|"));
  text += "  case \"$here\" in\n";
  for (const Place& place : places) {
    std::string words;
    for (const Choice& choice : place.choices) words += (words.empty() ? "" : " ") + choice.word;
    text += fmt::format("    '{}') word='{}' ;;\n", place.path, words);
  }
  text += "  esac\n  COMPREPLY=($(compgen -W \"$word\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n";
  return text + "complete -o default -F _llorch llorch\n";
}

std::string for_zsh(const std::vector<Place>& places) {
  std::string text = "#compdef llorch\n# made by `llorch completion zsh`\n_llorch() {\n";
  text += "  local here='' word\n  local -a choices\n";
  text += "  for word in ${words[2,CURRENT-1]}; do\n";
  text += fmt::format("    case \"$here $word\" in {}) here=\"$here $word\" ;; esac\n  done\n",
                      all_paths(places, "|"));
  text += "  case \"$here\" in\n";
  for (const Place& place : places) {
    text += fmt::format("    '{}') choices=(", place.path);
    for (const Choice& choice : place.choices)
      text += fmt::format("'{}:{}' ", choice.word, choice.about);
    text += ") ;;\n";
  }
  text += "  esac\n  _describe 'llorch' choices || _files\n}\n";
  return text +
         "if [ \"$funcstack[1]\" = _llorch ]; then _llorch \"$@\"; else compdef _llorch llorch; "
         "fi\n";
}

std::string for_fish(const std::vector<Place>& places) {
  std::string text = "# fish completion for llorch; made by `llorch completion fish`\n";
  text += fmt::format("set -g __llorch_places {}\n", all_paths(places, " "));
  text +=
      "function __llorch_at\n  set -l here ''\n  for word in (commandline -opc)[2..-1]\n"
      "    contains -- \"$here $word\" $__llorch_places; and set here \"$here $word\"\n  end\n"
      "  test \"$here\" = \"$argv[1]\"\nend\n";
  for (const Place& place : places) {
    for (const Choice& choice : place.choices) {
      const bool is_flag = choice.word.starts_with("--");
      text += fmt::format("complete -c llorch -n \"__llorch_at '{}'\" {} {} -d '{}'\n", place.path,
                          is_flag ? "-l" : "-f -a", is_flag ? choice.word.substr(2) : choice.word,
                          choice.about);
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  std::vector<Place> places;
  add_places(app, "", places);
  if (shell == "zsh") return for_zsh(places);
  return shell == "fish" ? for_fish(places) : for_bash(places);
}

void add_completion_command(CLI::App& app, FleetContext& context) {
  CLI::App* command =
      app.add_subcommand("completion", "a script that completes commands in your shell");
  command->set_help_flag("-h,--help", "print this help");
  command->footer(kFooter);
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kShells), std::end(kShells)))
                  .description(""));
  command->add_flag("--json", context.json_output, "print JSON for programs");
  command->callback([&app, &context, shell] {
    context.runs_unprepared = true;
    context.chosen = [&app, &context, shell] {
      const std::string script = completion_script(app, *shell);
      return context.json_output ? print_json(json::Object{{"shell", *shell}, {"script", script}})
                                 : print(script);
    };
  });
}

}  // namespace llorch::cli
