// Expected failure as a value: Error, Result<T>, Status. No macros, no exceptions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace llorch {

// What kind of failure, in words that fit any module. contract/error_table.h maps each to its wire
// code and HTTP status.
enum class ErrorCode : std::uint8_t {
  InvalidArgument,
  Unauthorized,
  Forbidden,
  NotFound,
  MethodNotAllowed,
  Conflict,
  TooLarge,
  UnsupportedMedia,
  QueueFull,
  Cancelled,
  Internal,
  LoadFailed,
  DeviceOutOfMemory,
  DeviceFailed,
  Unavailable,
  OutOfMemory,
  DeadlineExceeded,
  Corrupt,      // a file or message breaks its format
  Unsupported,  // well-formed, but asks for something we do not do
};

struct Error {
  ErrorCode code = ErrorCode::Internal;
  std::string
      message;  // names the thing, the expected, the found, and what to do where the user can act

  // The same error with "context: " in front of its message.
  [[nodiscard]] Error in(std::string_view context) const {
    return {code, std::string(context) + ": " + message};
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }

  T& value() & {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  // Moves the value out; the Result is spent.
  T take() {
    CHECK(ok(), error_text());
    return std::move(std::get<0>(state_));
  }
  const Error& error() const {
    CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }

  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::string_view error_text() const {
    return ok() ? std::string_view() : std::get<1>(state_).message;
  }

  std::variant<T, Error> state_;
};

using Status = Result<std::monostate>;

inline Status ok_status() {
  return std::monostate{};
}

}  // namespace llorch
