#include "audit/audit_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace llorch::audit {
namespace {

namespace fs = std::filesystem;

// A file is closed at 8 MiB; one that somebody else wrote is not read without end.
constexpr std::size_t kFileBytesMax = std::size_t{64} << 20U;
constexpr std::string_view kPrefix = "audit-";
constexpr std::string_view kSuffix = ".jsonl";

// Walks along the chain; says what breaks it.
class Chain {
 public:
  explicit Chain(const std::optional<Anchor>& anchor) : anchor_(anchor) {}

  // Empty: it holds so far.
  std::string take(const RawLine& raw) {
    if (!raw.is_whole)
      return "it is unfinished: whoever wrote it was killed; the next start repairs that";
    const Result<Line> line = read_line(raw.text);
    if (!line.ok()) return line.error().message;
    if (is_first_) {
      const std::uint64_t oldest = anchor_ ? anchor_->oldest : 1;
      if (line->seq > oldest)
        return fmt::format("lines {} to {} before it are missing", oldest, line->seq - 1);
      if (line->seq == 1 && line->previous != Head{}.hash) return "it is not the first of a log";
    } else if (line->seq > head_.seq + 1) {
      return fmt::format("lines {} to {} before it are missing", head_.seq + 1, line->seq - 1);
    } else if (line->seq != head_.seq + 1) {
      return fmt::format("it has the number {} where {} was expected", line->seq, head_.seq + 1);
    } else if (line->previous != head_.hash) {
      return "it does not follow the line before it";
    }
    if (anchor_ && line->seq == anchor_->head.seq && line->hash != anchor_->head.hash)
      return fmt::format("it is another line {} than the one that the store knows", line->seq);
    is_first_ = false;
    head_ = {line->seq, line->hash};
    return {};
  }

  // At the end of the last file.
  std::string end() const {
    if (!anchor_ || head_.seq >= anchor_->head.seq) return {};
    return fmt::format("the end is missing: lines {} to {} were written and are not here",
                       head_.seq + 1, anchor_->head.seq);
  }
  const Head& head() const { return head_; }

 private:
  const std::optional<Anchor>& anchor_;
  bool is_first_ = true;
  Head head_;
};

}  // namespace

std::string to_text(const Anchor& anchor) {
  return fmt::format("{} {} {}", anchor.head.seq, anchor.head.hash, anchor.oldest);
}

std::optional<Anchor> anchor_from_text(std::string_view text) {
  Anchor anchor;
  const char* const end = text.data() + text.size();
  const auto [after_seq, bad_seq] = std::from_chars(text.data(), end, anchor.head.seq);
  constexpr std::size_t kHashDigits = 64;
  const std::string_view rest(after_seq, static_cast<std::size_t>(end - after_seq));
  if (bad_seq != std::errc() || rest.size() < kHashDigits + 3 || rest[0] != ' ' ||
      rest[kHashDigits + 1] != ' ')
    return std::nullopt;
  anchor.head.hash = rest.substr(1, kHashDigits);
  const auto [last, bad] = std::from_chars(rest.data() + kHashDigits + 2, end, anchor.oldest);
  if (bad != std::errc() || last != end) return std::nullopt;
  return anchor;
}

fs::path current_file(const fs::path& folder) {
  return folder / "audit.jsonl";
}

fs::path older_file(const fs::path& folder, std::uint64_t first_seq) {
  return folder / fmt::format("{}{:012}{}", kPrefix, first_seq, kSuffix);
}

std::vector<fs::path> list_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (fs::exists(current_file(folder), error)) files.push_back(current_file(folder));
  return files;
}

Status for_each_line(const fs::path& folder, const std::function<bool(const RawLine&)>& on_line) {
  for (const fs::path& file : list_files(folder)) {
    const Result<std::string> text = base::read_text_file(file, kFileBytesMax);
    if (!text.ok()) return text.error();
    std::string_view rest = *text;
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::size_t end = rest.find('\n');
      const bool is_whole = end != std::string_view::npos;
      if (!on_line({file, number, rest.substr(0, end), is_whole})) return ok_status();
      rest.remove_prefix(is_whole ? end + 1 : rest.size());
    }
  }
  return ok_status();
}

Result<Verdict> verify(const fs::path& folder, const std::optional<Anchor>& anchor) {
  Verdict verdict;
  verdict.num_files = list_files(folder).size();
  Chain chain(anchor);
  const Status read = for_each_line(folder, [&](const RawLine& line) {
    const std::string problem = chain.take(line);
    if (!problem.empty()) {
      verdict.problem =
          fmt::format("{}, line {}: {}", line.file.filename().string(), line.number, problem);
      return false;
    }
    ++verdict.num_lines;
    return true;
  });
  if (!read.ok()) return read.error();
  if (verdict.problem.empty()) verdict.problem = chain.end();
  verdict.head = chain.head();
  return verdict;
}

}  // namespace llorch::audit
