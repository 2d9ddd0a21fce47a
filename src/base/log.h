// Logging: one line per event on stderr, as JSON for machines or as text for people. A thin front
// that hides the logging library; the sink, its format and its level are the only state, set once
// at start.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <variant>

namespace spdlog {
class logger;
}

namespace llorch::base {

enum class LogLevel : std::uint8_t { Debug, Info, Warn, Error, Off };
enum class LogFormat : std::uint8_t { Json, Pretty };

struct LogOptions {
  LogFormat format = LogFormat::Pretty;
  LogLevel level = LogLevel::Info;
};

// Applies to every logger, those already made too. Before the first call the defaults above hold.
// Any thread.
void configure_log(const LogOptions& options);

// A named value of one log line. Views must live until the call returns.
struct LogField {
  using Value = std::variant<std::string_view, std::int64_t, double, bool>;

  LogField(std::string_view key, std::string_view text) : name(key), value(text) {}
  LogField(std::string_view key, const char* text) : name(key), value(std::string_view(text)) {}
  LogField(std::string_view key, bool flag) : name(key), value(flag) {}
  LogField(std::string_view key, std::integral auto number)
      : name(key), value(static_cast<std::int64_t>(number)) {}
  LogField(std::string_view key, std::floating_point auto number)
      : name(key), value(static_cast<double>(number)) {}

  std::string_view name;
  Value value;
};

// The logger of one module. Cheap to copy; every thread may use it. Text from outside is escaped,
// so that one event is always one line. Prompts, outputs and secrets do not belong in any field.
class Logger {
 public:
  explicit Logger(std::string_view module);

  void debug(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void info(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void warn(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  void error(std::string_view message, std::initializer_list<LogField> fields = {}) const;
  bool is_enabled(LogLevel level) const;

 private:
  void write(LogLevel level, std::string_view message,
             std::initializer_list<LogField> fields) const;

  std::shared_ptr<spdlog::logger> impl_;
};

}  // namespace llorch::base
