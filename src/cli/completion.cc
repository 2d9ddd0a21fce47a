#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/json.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

std::string footer(const std::string& program) {
  return fmt::format(
      "Examples:\n"
      "  eval \"$({0} completion bash)\"   in ~/.bashrc\n"
      "  {0} completion zsh > ~/.zfunc/_{0}   a folder of $fpath\n"
      "  {0} completion fish > ~/.config/fish/completions/{0}.fish",
      program);
}

// As a part of names that bash and fish take.
std::string identifier(std::string program) {
  std::replace(program.begin(), program.end(), '-', '_');
  return program;
}

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

std::string for_bash(const std::string& program, const std::vector<Place>& places) {
  const std::string function = "_" + identifier(program);
  std::string text = fmt::format(
      "# bash completion for {0}; made by `{0} completion bash`\n{1}() {{\n", program, function);
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
  return text + fmt::format("complete -o default -F {} {}\n", function, program);
}

// The function has the name of the file from which zsh loads it.
std::string for_zsh(const std::string& program, const std::vector<Place>& places) {
  std::string text = fmt::format(
      "#compdef {0}\n# made by `{0} completion zsh`\n_{0}() {{\n  local here='' word\n", program);
  text += "  local -a choices\n  for word in ${words[2,CURRENT-1]}; do\n";
  text += fmt::format("    case \"$here $word\" in {}) here=\"$here $word\" ;; esac\n  done\n",
                      all_paths(places, "|"));
  text += "  case \"$here\" in\n";
  for (const Place& place : places) {
    text += fmt::format("    '{}') choices=(", place.path);
    for (const Choice& choice : place.choices)
      text += fmt::format("'{}:{}' ", choice.word, choice.about);
    text += ") ;;\n";
  }
  return text +
         fmt::format(
             "  esac\n  _describe '{0}' choices || _files\n}}\nif [ \"$funcstack[1]\" = _{0} "
             "]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
             program);
}

std::string for_fish(const std::string& program, const std::vector<Place>& places) {
  const std::string at = fmt::format("__{}_at", identifier(program));
  const std::string known = fmt::format("__{}_places", identifier(program));
  std::string text =
      fmt::format("# fish completion for {0}; made by `{0} completion fish`\n", program);
  text += fmt::format("set -g {} {}\n", known, all_paths(places, " "));
  text += fmt::format(
      "function {}\n  set -l here ''\n  for word in (commandline -opc)[2..-1]\n"
      "    contains -- \"$here $word\" ${}; and set here \"$here $word\"\n  end\n"
      "  test \"$here\" = \"$argv[1]\"\nend\n",
      at, known);
  for (const Place& place : places) {
    for (const Choice& choice : place.choices) {
      const bool is_flag = choice.word.starts_with("--");
      text += fmt::format("complete -c {} -n \"{} '{}'\" {} {} -d '{}'\n", program, at, place.path,
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
  const std::string& program = app.get_name();
  if (shell == "zsh") return for_zsh(program, places);
  return shell == "fish" ? for_fish(program, places) : for_bash(program, places);
}

CLI::App* add_completion_command(CLI::App& app, const bool& json_output,
                                 const std::function<void(std::function<int()> run)>& choose) {
  CLI::App* command =
      app.add_subcommand("completion", "a script that completes commands in your shell");
  command->set_help_flag("-h,--help", "print this help");
  command->footer(footer(app.get_name()));
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kShells), std::end(kShells)))
                  .description(""));
  command->callback([&app, &json_output, shell, choose] {
    choose([&app, &json_output, shell] {
      const std::string script = completion_script(app, *shell);
      return json_output ? print_json(json::Object{{"shell", *shell}, {"script", script}})
                         : print(script);
    });
  });
  return command;
}

}  // namespace llorch::cli
