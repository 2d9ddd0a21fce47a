// A file as the body of an answer, whole or one range of it (RFC 9110, section 14).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/positioned_file.h"
#include "base/result.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "http/work_threads.h"

namespace llorch::http {

struct FileBody {
  std::shared_ptr<const base::PositionedFile> file;
  std::int64_t size = 0;
  std::string etag;  // without its quotes; the same only when every byte is; may be empty
  std::string content_type = "application/octet-stream";
};

// Which bytes a request wants.
struct ByteRange {
  enum class Kind : std::uint8_t {
    Whole,          // 200
    Part,           // 206
    Unsatisfiable,  // 416: it begins behind the end
  };
  Kind kind = Kind::Whole;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// One range is served; a Range header with several, of another unit or malformed is ignored, as the
// RFC allows, and so is one whose If-Range is not the file's ETag and any in a request other than
// GET.
ByteRange choose_range(const Request& request, std::int64_t size, std::string_view etag);

// "bytes */SIZE", which an answer 416 carries. That answer is the caller's: this module knows no
// error bodies.
std::string unsatisfied_content_range(std::int64_t size);

// Answers with the bytes, read piece by piece on `threads`. A file that turns out shorter than it
// was breaks the stream visibly. `range` is not unsatisfiable.
Task<Status> send_file(Responder& responder, WorkThreads& threads, FileBody body, ByteRange range);

}  // namespace llorch::http
