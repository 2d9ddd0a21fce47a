#include "base/job_border.h"

#include <exception>
#include <new>
#include <string>

namespace llorch::base {

Error error_of_current_exception(std::string_view doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::OutOfMemory, "out of memory " + std::string(doing)};
  } catch (const std::exception& exception) {
    return {ErrorCode::Internal,
            "unexpected failure " + std::string(doing) + ": " + exception.what()};
  } catch (...) {
    return {ErrorCode::Internal, "unexpected failure " + std::string(doing)};
  }
}

}  // namespace llorch::base
