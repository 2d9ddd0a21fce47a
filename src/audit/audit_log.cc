#include "audit/audit_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"

namespace llorch::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxWaiting = 256;
constexpr std::size_t kFileBytesMax = std::size_t{64} << 20U;
constexpr int kRefusalsPerMinute = 20;
constexpr std::string_view kDaemon = "daemon";

const base::Logger& logger() {
  static const base::Logger instance("audit");
  return instance;
}

Error file_error(const fs::path& file, std::string_view doing) {
  return {ErrorCode::Internal, fmt::format("the audit log {}: {} while {}; is the disk full?",
                                           file.string(), std::strerror(errno), doing)};
}

// What the newest file holds.
struct Found {
  std::optional<Head> head;     // of its last whole line; none: that line is not good
  std::size_t whole_bytes = 0;  // without an unfinished line
  std::string unfinished;
  std::uint64_t first_seq = 0;  // of its first line; 0: none
};

Result<Found> look_at(const fs::path& file) {
  const Result<std::string> text = base::read_text_file(file, kFileBytesMax);
  if (!text.ok()) return text.error();
  Found found;
  const std::size_t last = text->rfind('\n');
  found.whole_bytes = last == std::string::npos ? 0 : last + 1;
  found.unfinished = text->substr(found.whole_bytes);
  if (found.whole_bytes == 0) return found;
  const std::size_t before = last == 0 ? std::string::npos : text->rfind('\n', last - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  if (const Result<Line> line = read_line(std::string_view(*text).substr(begin, last - begin));
      line.ok())
    found.head = Head{line->seq, line->hash};
  if (const Result<Line> line = read_line(std::string_view(*text).substr(0, text->find('\n')));
      line.ok())
    found.first_seq = line->seq;
  return found;
}

}  // namespace

// Belongs to the log's thread.
class AuditLog::Writer {
 public:
  explicit Writer(LogOptions options) : options_(std::move(options)) {}
  ~Writer() { close(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const Head& head() const { return anchor_.head; }

  Status open() {
    anchor_ = options_.anchor.value_or(Anchor{});
    const std::vector<fs::path> files = list_files(options_.folder);
    if (files.empty()) return anchor_.head.seq == 0 ? ok_status() : tell_gap(0);
    const fs::path& newest = files.back();
    const Result<Found> found = look_at(newest);
    if (!found.ok()) return found.error();
    if (newest == current_file(options_.folder)) first_seq_ = found->first_seq;
    if (!found->unfinished.empty()) {
      if (Status mended = cut(newest, found->whole_bytes); !mended.ok()) return mended;
    }
    // An empty file has no last line of its own: the chain ends in the one before.
    std::optional<Head> last = found->head;
    if (found->whole_bytes == 0 && files.size() > 1) {
      const Result<Found> before = look_at(files[files.size() - 2]);
      if (!before.ok()) return before.error();
      last = before->head;
    }
    const bool is_empty = found->whole_bytes == 0 && files.size() == 1;
    const std::uint64_t known = anchor_.head.seq;
    if (last && last->seq >= known) anchor_.head = *last;
    if (!last && !is_empty) {
      if (Status told = write({.actor = std::string(kDaemon),
                               .action = "audit.damaged",
                               .object = newest.filename().string(),
                               .result = "CORRUPT",
                               .detail = "its last line is not good"});
          !told.ok())
        return told;
    } else if ((last ? last->seq : 0) < known) {
      if (Status told = tell_gap(last ? last->seq : 0); !told.ok()) return told;
    }
    if (found->unfinished.empty()) return ok_status();
    return write(
        {.actor = std::string(kDaemon),
         .action = "audit.repaired",
         .object = newest.filename().string(),
         .detail = fmt::format("an unfinished line of {} bytes was taken away, SHA-256 {}",
                               found->unfinished.size(), base::sha256_hex(found->unfinished))});
  }

  Status write(const Act& act) {
    if (Status ready = make_ready(); !ready.ok()) return ready;
    Head next = anchor_.head;
    const std::string line = write_line(act, std::chrono::system_clock::now(), next);
    struct stat before {};
    if (::fstat(fd_, &before) != 0) return file_error(file(), "looking at it");
    const ssize_t written = ::write(fd_, line.data(), line.size());
    if (written != static_cast<ssize_t>(line.size()) || ::fdatasync(fd_) != 0) {
      const Error failure = file_error(file(), "writing");
      torn_at_ = before.st_size;  // half a line must not stay before the next one
      std::ignore = take_torn_line();
      return failure;
    }
    if (first_seq_ == 0) first_seq_ = next.seq;
    anchor_.head = next;
    size_ = before.st_size + written;
    return options_.keep_anchor(anchor_);
  }

 private:
  fs::path file() const { return current_file(options_.folder); }

  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  bool is_in_place() const {
    struct stat own {};
    struct stat there {};
    return ::fstat(fd_, &own) == 0 && ::lstat(file().c_str(), &there) == 0 &&
           own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  }

  Status take_torn_line() {
    if (torn_at_ < 0) return ok_status();
    if (::ftruncate(fd_, torn_at_) != 0) return file_error(file(), "repairing it");
    torn_at_ = -1;
    return ok_status();
  }

  Status tell_gap(std::uint64_t last_seq) {
    logger().error("the end of the audit log is missing",
                   {{"last_line", last_seq}, {"expected", anchor_.head.seq}});
    return write({.actor = std::string(kDaemon),
                  .action = "audit.gap",
                  .object = file().filename().string(),
                  .result = "CORRUPT",
                  .detail = fmt::format("lines {} to {} were written and are not here",
                                        last_seq + 1, anchor_.head.seq)});
  }

  static Status cut(const fs::path& file, std::size_t bytes) {
    std::error_code error;
    fs::resize_file(file, bytes, error);
    if (error) {
      return Error{ErrorCode::Internal, fmt::format("the audit log {} cannot be repaired: {}",
                                                    file.string(), error.message())};
    }
    return ok_status();
  }

  // A file that can be appended to; a full one moves aside first.
  Status make_ready() {
    if (fd_ >= 0 && size_ >= options_.file_bytes) {
      if (Status moved = begin_next_file(); !moved.ok()) return moved;
    }
    if (fd_ >= 0 && !is_in_place()) {  // somebody put another file there: the next line shows that
      close();
      torn_at_ = -1;
    }
    if (fd_ >= 0) return take_torn_line();
    fd_ = ::open(file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return file_error(file(), "opening it");
    base::make_private(file());
    const int folder = ::open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool is_synced = folder >= 0 && ::fsync(folder) == 0;
    if (folder >= 0) ::close(folder);
    return is_synced ? ok_status() : Status(file_error(options_.folder, "syncing its folder"));
  }

  Status begin_next_file() {
    close();
    std::error_code error;
    fs::rename(file(), older_file(options_.folder, first_seq_), error);
    if (error) {
      return Error{ErrorCode::Internal, fmt::format("the audit log {} cannot move aside: {}",
                                                    file().string(), error.message())};
    }
    first_seq_ = 0;
    size_ = 0;
    std::vector<fs::path> old = list_files(options_.folder);
    while (old.size() > options_.old_files) {
      // The store hears first which line is the oldest from now on.
      const Result<Found> next = look_at(old[1]);
      if (next.ok() && next->first_seq > 0) anchor_.oldest = next->first_seq;
      if (Status kept = options_.keep_anchor(anchor_); !kept.ok()) return kept;
      fs::remove(old.front(), error);
      old.erase(old.begin());
    }
    return ok_status();
  }

  const LogOptions options_;
  Anchor anchor_;
  std::uint64_t first_seq_ = 0;  // of the current file; 0: it has no line
  std::int64_t size_ = 0;
  std::int64_t torn_at_ = -1;  // where half a line begins that is to be taken away
  int fd_ = -1;
};

AuditLog::AuditLog(std::unique_ptr<Writer> writer)
    : head_(writer->head()), writer_(std::move(writer)), loop_("audit", kMaxWaiting) {}

AuditLog::~AuditLog() {
  loop_.stop();
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(LogOptions options) {
  auto writer = std::make_unique<Writer>(std::move(options));
  if (Status opened = writer->open(); !opened.ok()) return opened.error();
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(writer)));
}

Status AuditLog::append(const Act& act) {
  return loop_.ask([this, &act] {
    Status written = writer_->write(act);
    const base::MutexLock lock(mutex_);
    head_ = writer_->head();
    return written;
  });
}

void AuditLog::note(const Act& act) {
  const bool is_taken = loop_.post([this, act] {
    const Status written = writer_->write(act);
    if (!written.ok()) logger().error("a line is missing", {{"why", written.error().message}});
    const base::MutexLock lock(mutex_);
    head_ = writer_->head();
  });
  if (!is_taken) logger().error("a line is missing: too many wait", {{"action", act.action}});
}

void AuditLog::note_refusal(const std::string& key, const std::string& path,
                            std::string_view result) {
  const auto now = std::chrono::steady_clock::now();
  std::size_t left_out = 0;
  {
    const base::MutexLock lock(mutex_);
    if (now - minute_ > std::chrono::minutes(1)) {
      minute_ = now;
      refusals_ = 0;
    }
    if (refusals_ >= kRefusalsPerMinute) {
      ++left_out_;
      return;
    }
    ++refusals_;
    left_out = std::exchange(left_out_, 0);
  }
  // A key may stand in a path by mistake.
  const std::size_t secret = path.find("llk_");
  note({.actor = key,
        .action = "request.refused",
        .object = secret == std::string::npos ? path : path.substr(0, secret) + "llk_…",
        .result = std::string(result),
        .detail = left_out > 0 ? fmt::format("{} more before it are not listed", left_out) : ""});
}

Head AuditLog::head() const {
  const base::MutexLock lock(mutex_);
  return head_;
}

}  // namespace llorch::audit
