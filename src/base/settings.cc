#include "base/settings.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/similar_names.h"
#include "base/utf8.h"

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

// Every section that some program of ours reads; the keys of a section are its program's business.
constexpr std::array<std::string_view, 3> kSections = {"pool", "worker", "orchestrator"};

struct KeyValue {
  std::string name;
  std::string value;
  std::uint32_t line = 0;
};

std::string variable_of(std::string_view prefix, std::string_view name) {
  std::string variable(prefix);
  for (const char c : name)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

// The file's text; nothing where there is none and nobody named it. Anything else in its place is
// an error: a program that starts without its settings may start without its token.
Result<std::optional<std::string>> read_config(const fs::path& path, bool is_named) {
  if (path.empty() || path == "/dev/null") return std::optional<std::string>();  // none wanted
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    if (!is_named) return std::optional<std::string>();
    return Error{ErrorCode::NotFound,
                 fmt::format("{}: there is no such file, and LLORCH_CONFIG names it; make it, or "
                             "unset LLORCH_CONFIG",
                             path.string())};
  }
  if (status.type() == fs::file_type::directory) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: expected a file, found a folder", path.string())};
  }
  if (status.type() != fs::file_type::regular) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: expected a file that can be read, found {}", path.string(),
                             error ? error.message() : "something else")};
  }
  Result<std::string> text = read_text_file(path, kConfigBytesMax);
  if (!text.ok()) return text.error().in("the configuration");
  return std::optional<std::string>(text.take());
}

// Reads one program's section and checks the others' names.
class ConfigReader {
 public:
  ConfigReader(std::string file, const SettingNames& settings)
      : file_(std::move(file)), settings_(settings) {}

  Result<std::vector<KeyValue>> read(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text, file_);
    if (!parsed) {
      return problem(parsed.error().source(),
                     fmt::format("is not TOML: {}", parsed.error().description()));
    }
    std::vector<KeyValue> found;
    for (const auto& [key, node] : parsed.table()) {
      if (std::find(kSections.begin(), kSections.end(), key.str()) == kSections.end())
        return unknown_section(key.str(), node);
      if (!node.is_table()) {
        return problem(node.source(), fmt::format("{} must be a section: [{}]",
                                                  base::quoted(key.str()), key.str()));
      }
      if (key.str() != settings_.section) continue;
      if (Status taken = take_section(*node.as_table(), found); !taken.ok()) return taken.error();
    }
    return found;
  }

 private:
  Error problem(const toml::source_region& where, std::string_view what) const {
    return {ErrorCode::InvalidArgument,
            fmt::format("{}, line {}: {}", file_, where.begin.line, what)};
  }

  Error unknown_section(std::string_view name, const toml::node& node) const {
    if (!node.is_table()) {
      return problem(
          node.source(),
          fmt::format("the key {} stands outside of any section; expected it below [pool] "
                      "or [worker]",
                      base::quoted(name)));
    }
    const std::vector<std::string_view> sections(kSections.begin(), kSections.end());
    return problem(
        node.source(),
        fmt::format("there is no section [{}], only [{}], [{}] and [{}]{}", to_valid_utf8(name),
                    kSections[0], kSections[1], kSections[2], did_you_mean(name, sections)));
  }

  Status take_section(const toml::table& section, std::vector<KeyValue>& found) const {
    for (const auto& [key, node] : section) {
      std::string name(key.str());
      std::replace(name.begin(), name.end(), '_', '-');
      if (std::find(settings_.names.begin(), settings_.names.end(), name) ==
          settings_.names.end()) {
        const std::vector<std::string_view> names(settings_.names.begin(), settings_.names.end());
        return problem(node.source(),
                       fmt::format("[{}] has no key {}{}", settings_.section,
                                   base::quoted(key.str()), did_you_mean(name, names)));
      }
      const auto is_same = [&name](const KeyValue& pair) { return pair.name == name; };
      if (std::any_of(found.begin(), found.end(), is_same)) {
        return problem(node.source(), fmt::format("{} is there twice, once with - and once with _",
                                                  base::quoted(name)));
      }
      const std::optional<std::string> value = value_of(node);
      if (!value) {
        return problem(node.source(),
                       fmt::format("{} must have one value (text in quotes, a number, true or "
                                   "false), found {}",
                                   base::quoted(key.str()), kind_of(node)));
      }
      found.push_back({std::move(name), *value, node.source().begin.line});
    }
    return ok_status();
  }

  // As it would stand behind the flag.
  static std::optional<std::string> value_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    return std::nullopt;
  }

  static std::string_view kind_of(const toml::node& node) {
    if (node.is_array()) return "a list";
    return node.is_table() ? "a section" : "a date";
  }

  const std::string file_;
  const SettingNames& settings_;
};

// The program's section of the user's file; nothing where there is no file.
Result<std::vector<KeyValue>> read_section(const SettingNames& settings,
                                           const Environment& environment) {
  const fs::path file = find_config_file(environment);
  const char* named = environment("LLORCH_CONFIG");
  const Result<std::optional<std::string>> text =
      read_config(file, named != nullptr && *named != '\0');
  if (!text.ok()) return text.error();
  if (!*text) return std::vector<KeyValue>();
  return ConfigReader(file.string(), settings).read(**text);
}

// Whether a message speaks of this flag and not of one whose name begins with it.
bool names_flag(std::string_view message, std::string_view name) {
  const std::string flag = fmt::format("--{}", name);
  const std::size_t at = message.find(flag);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + flag.size();
  return end == message.size() ||
         (std::isalnum(static_cast<unsigned char>(message[end])) == 0 && message[end] != '-');
}

}  // namespace

bool has_flag(const std::vector<std::string>& arguments, std::string_view name) {
  const std::string flag = fmt::format("--{}", name);
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

Result<std::vector<std::string>> with_settings(std::vector<std::string> arguments,
                                               const SettingNames& settings,
                                               const Environment& environment) {
  const auto add = [&arguments](std::string_view name, std::string_view value) {
    if (!has_flag(arguments, name)) arguments.push_back(fmt::format("--{}={}", name, value));
  };
  for (const std::string_view name : settings.names) {
    const char* value = environment(variable_of(settings.variable_prefix, name).c_str());
    if (value != nullptr && *value != '\0') add(name, value);
  }
  const Result<std::vector<KeyValue>> section = read_section(settings, environment);
  if (!section.ok()) return section.error();
  for (const KeyValue& pair : *section) add(pair.name, pair.value);
  return arguments;
}

std::string tell_origin(std::string_view message, const std::vector<std::string>& arguments,
                        const SettingNames& settings, const Environment& environment) {
  for (const std::string_view name : settings.names) {
    if (!names_flag(message, name) || has_flag(arguments, name)) continue;
    const std::string variable = variable_of(settings.variable_prefix, name);
    const char* value = environment(variable.c_str());
    if (value != nullptr && *value != '\0') return fmt::format("; {} says so", variable);
    const Result<std::vector<KeyValue>> section = read_section(settings, environment);
    if (!section.ok()) return {};
    for (const KeyValue& pair : *section) {
      if (pair.name == name)
        return fmt::format("; {}, line {}, says so", find_config_file(environment).string(),
                           pair.line);
    }
  }
  return {};
}

Status check_config(const Environment& environment) {
  // A section that no program has: every real one is only looked at from outside.
  const Result<std::vector<std::string>> read = with_settings({}, {"", "", {}}, environment);
  return read.ok() ? ok_status() : Status(read.error());
}

}  // namespace llorch::base
