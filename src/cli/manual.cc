#include "cli/manual.h"

#include <fmt/format.h>

#include <cctype>
#include <memory>
#include <vector>

#include "base/version.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

// A line of text as roff takes it: no line begins with a dot or a quote, no letter is an escape.
std::string roff(std::string_view text) {
  std::string out;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    begins_line = c == '\n';
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '^':
        out += "\\(ha";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

bool takes_value(const CLI::Option& option) {
  return option.get_expected_min() > 0;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_name());
  return names;
}

bool is_flag(const CLI::Option& option) {
  return !option.get_snames().empty() || !option.get_lnames().empty();
}

std::string options_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::string head;
    for (const std::string& name : names_of(*option))
      head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", roff(name));
    if (is_flag(*option) && takes_value(*option))
      head += fmt::format(" \\fI{}\\fR", roff(option->get_type_name()));
    text += fmt::format(".TP\n{}\n{}\n", head, roff(option->get_description()));
  }
  return text;
}

std::string footer_text(const CLI::App& app) {
  const std::string footer = app.get_footer();
  return footer.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", roff(footer));
}

void add_commands(const CLI::App& app, const std::string& path, std::string& text) {
  for (const CLI::App* command : commands_below(app)) {
    const std::string name = path + " " + command->get_name();
    text += fmt::format(".SS \"{}\"\n{}\n", roff(name), roff(command->get_description()));
    text += options_text(*command) + footer_text(*command);
    add_commands(*command, name, text);
  }
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  const std::string& name = app.get_name();
  std::string text =
      fmt::format(".TH {} 1 \"\" \"llama\\-orch {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                  upper(name), base::version(), roff(name), roff(app.get_description()));
  text += fmt::format(
      ".SH SYNOPSIS\n.B {}\n[\\fIoption\\fR]... \\fIcommand\\fR [\\fIoption\\fR]...\n", roff(name));
  text += ".SH OPTIONS\n" + options_text(app);
  text += ".SH COMMANDS\n";
  add_commands(app, name, text);
  if (!app.get_footer().empty()) text += ".SH EXAMPLES AND NOTES\n" + footer_text(app);
  text +=
      ".SH FILES\n.TP\n\\fI\\(ti/.config/llorch/config.toml\\fR\nsettings\n.TP\n"
      "\\fI\\(ti/.local/share/llorch\\fR\nmodels, catalog, jobs\n.TP\n"
      "\\fI\\(ti/.local/state/llorch\\fR\nlogs and what runs\n.PP\n"
      "\\fBLLORCH_HOME\\fR moves all of them.\n";
  return text;
}

json::Object command_table(const CLI::App& app) {
  json::Array options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::vector<std::string> names = names_of(*option);
    options.push_back(json::Object{{"names", json::Array(names.begin(), names.end())},
                                   {"about", option->get_description()},
                                   {"value", takes_value(*option)}});
  }
  json::Array commands;
  for (const CLI::App* command : commands_below(app)) commands.push_back(command_table(*command));
  return {{"name", app.get_name()},
          {"about", app.get_description()},
          {"options", std::move(options)},
          {"commands", std::move(commands)}};
}

void add_manual_command(CLI::App& app,
                        const std::function<void(std::function<int()> run)>& choose) {
  CLI::App* command = app.add_subcommand("manual", "the manual as man(1) reads it");
  command->group("");  // for packages and tests
  const auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "the table of commands for programs");
  command->callback([&app, choose, as_json] {
    choose([&app, as_json] {
      return *as_json ? print_json(command_table(app)) : print(manual_page(app));
    });
  });
}

}  // namespace llorch::cli
