#include "base/settings.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"

namespace llorch::base {
namespace {

constexpr std::size_t kConfigBytesMax = std::size_t{1} << 20;

using KeyValue = std::pair<std::string, std::string>;

std::string variable_of(std::string_view prefix, std::string_view name) {
  std::string variable(prefix);
  for (const char c : name)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

// CLI11's reader throws; its exceptions end here.
Result<std::vector<CLI::ConfigItem>> parse_toml(const std::string& text) {
  std::istringstream stream(text);
  try {
    return CLI::ConfigTOML().from_config(stream);
  } catch (const std::exception& error) {
    return Error{ErrorCode::InvalidArgument, error.what()};
  }
}

Result<std::vector<KeyValue>> read_section(const std::filesystem::path& path,
                                           const SettingNames& settings) {
  std::vector<KeyValue> found;
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return found;
  const Result<std::string> text = read_text_file(path, kConfigBytesMax);
  if (!text.ok()) return text.error();
  const Result<std::vector<CLI::ConfigItem>> items = parse_toml(*text);
  if (!items.ok()) return items.error().in(path.string());
  for (const CLI::ConfigItem& item : *items) {
    // "++" and "--" are the reader's own marks where a section begins and ends.
    if (item.parents != std::vector<std::string>{std::string(settings.section)} ||
        item.name == "++" || item.name == "--")
      continue;
    if (std::find(settings.names.begin(), settings.names.end(), item.name) ==
            settings.names.end() ||
        item.inputs.size() != 1) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{}: [{}] has an unknown key or no single value: {}", path.string(),
                               settings.section, base::quoted(item.name))};
    }
    found.emplace_back(item.name, item.inputs[0]);
  }
  return found;
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
  const Result<std::vector<KeyValue>> section =
      read_section(find_config_file(environment), settings);
  if (!section.ok()) return section.error();
  for (const auto& [name, value] : *section) add(name, value);
  return arguments;
}

}  // namespace llorch::base
