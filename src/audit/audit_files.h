// The files of an audit log, read: all of its lines, in order, and whether the chain is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/audit_chain.h"
#include "base/result.h"

namespace llorch::audit {

// What is known of the log beside it, in the orchestrator's store: how far it went, and which line
// is the oldest that must still be there.
struct Anchor {
  Head head;
  std::uint64_t oldest = 1;
};
inline constexpr std::string_view kAnchorKey = "anchor";  // its name there
std::string to_text(const Anchor& anchor);
std::optional<Anchor> anchor_from_text(std::string_view text);

// audit.jsonl, which grows, and before it audit-<number of its first line>.jsonl. Oldest first.
std::filesystem::path current_file(const std::filesystem::path& folder);
std::filesystem::path older_file(const std::filesystem::path& folder, std::uint64_t first_seq);
std::vector<std::filesystem::path> list_files(const std::filesystem::path& folder);

// Each line of each file without its newline, until `on_line` returns false. `is_whole`: it has its
// newline.
struct RawLine {
  const std::filesystem::path& file;
  std::size_t number = 0;  // in its file, from 1
  std::string_view text;
  bool is_whole = true;
};
Status for_each_line(const std::filesystem::path& folder,
                     const std::function<bool(const RawLine& line)>& on_line);

struct Verdict {
  std::size_t num_lines = 0;
  std::size_t num_files = 0;
  Head head;            // of the last line that is good
  std::string problem;  // the first one: file, line, what is wrong; empty: the chain is whole
};

// `anchor`: what the store says, where there is one.
Result<Verdict> verify(const std::filesystem::path& folder, const std::optional<Anchor>& anchor);

}  // namespace llorch::audit
