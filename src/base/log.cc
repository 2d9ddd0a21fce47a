#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <atomic>
#include <cmath>
#include <iterator>
#include <string>

#include "base/utf8.h"

namespace llorch::base {
namespace {

// The process's one sink. Loggers share it, so configuring it reaches all of them.
struct LogState {
  LogState() { apply({}); }

  void apply(const LogOptions& options) {
    // The payload (%v) of a JSON line is the rest of the object, rendered by append_json().
    const char* pattern = options.format == LogFormat::Json
                              ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","module":"%n",%v})"
                              : "%Y-%m-%d %H:%M:%S.%e %^%-7l%$ %n: %v";
    sink->set_formatter(
        std::make_unique<spdlog::pattern_formatter>(pattern, spdlog::pattern_time_type::utc));
    format = options.format;
    level = options.level;
  }

  std::shared_ptr<spdlog::sinks::ansicolor_stderr_sink_mt> sink =
      std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  std::atomic<LogFormat> format;
  std::atomic<LogLevel> level;
};

LogState& state() {
  static LogState instance;
  return instance;
}

// The inside of a JSON string: quotes, backslashes and control characters escaped, broken UTF-8
// replaced.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : to_valid_utf8(text)) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

void append_value(std::string& out, const LogField::Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) return append_quoted(out, *text);
  if (const auto* number = std::get_if<double>(&value); number && !std::isfinite(*number)) {
    return append_quoted(out, fmt::format("{}", *number));  // JSON has no infinities
  }
  std::visit([&out](const auto& plain) { fmt::format_to(std::back_inserter(out), "{}", plain); },
             value);
}

std::string payload(bool is_json, std::string_view message,
                    std::initializer_list<LogField> fields) {
  const auto append = is_json ? append_quoted : append_escaped;
  std::string out = is_json ? "\"message\":" : "";
  append(out, message);
  for (const LogField& field : fields) {
    out += is_json ? ',' : ' ';
    append(out, field.name);
    out += is_json ? ':' : '=';
    append_value(out, field.value);
  }
  return out;
}

spdlog::level::level_enum library_level(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warn:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
    case LogLevel::Off:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

void configure_log(const LogOptions& options) {
  state().apply(options);
}

Logger::Logger(std::string_view module)
    : impl_(std::make_shared<spdlog::logger>(std::string(module), state().sink)) {
  impl_->set_level(spdlog::level::trace);  // is_enabled() decides
  impl_->flush_on(spdlog::level::trace);
}

bool Logger::is_enabled(LogLevel level) const {
  return level != LogLevel::Off && level >= state().level.load();
}

void Logger::write(LogLevel level, std::string_view message,
                   std::initializer_list<LogField> fields) const {
  if (!is_enabled(level)) return;
  impl_->log(library_level(level),
             payload(state().format.load() == LogFormat::Json, message, fields));
}

void Logger::debug(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::Debug, message, fields);
}
void Logger::info(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::Info, message, fields);
}
void Logger::warn(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::Warn, message, fields);
}
void Logger::error(std::string_view message, std::initializer_list<LogField> fields) const {
  write(LogLevel::Error, message, fields);
}

}  // namespace llorch::base
