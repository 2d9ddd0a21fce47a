#include "catalog/look.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json_fields.h"
#include "base/own_program.h"
#include "base/process.h"
#include "catalog/describe.h"
#include "formats/open.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

constexpr std::chrono::seconds kPatience{20};
constexpr rlim_t kCpuSeconds = 20;
[[maybe_unused]] constexpr rlim_t kDataBytes = rlim_t{2} << 30;
constexpr std::size_t kOutputBytesMax = std::size_t{4} << 20;
constexpr std::size_t kFilesAllowedMax = 2000;
constexpr int kExitRefused = 3;  // the line says why

// Programs lie together; tests lie beside the folder of programs.
Result<fs::path> find_program() {
  std::error_code error;
  const fs::path own = base::own_folder();
  for (const fs::path& folder : {own, own.parent_path() / "bin"}) {
    const fs::path program = folder / "llorch-pool";
    if (fs::is_regular_file(program, error)) return program;
  }
  return Error{ErrorCode::Unavailable,
               fmt::format("llorch-pool, which looks into weight files, is not in {}: install it "
                           "there",
                           own.string())};
}

Status check_kind(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int number = errno;
    const bool is_hidden = number == EACCES || number == EPERM;
    const bool is_absent = number == ENOENT || number == ENOTDIR;
    ErrorCode code = ErrorCode::InvalidArgument;
    if (is_hidden) code = ErrorCode::Forbidden;
    if (is_absent) code = ErrorCode::NotFound;
    return Error{code, fmt::format("cannot open {}: {}", path.string(), std::strerror(number))};
  }
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} is {}: expected a weight file or a folder with one", path.string(),
                           base::describe_file_kind(info.st_mode))};
}

std::string_view last_line(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

Error gave_up(const fs::path& path, const std::optional<base::ExitStatus>& exit) {
  if (exit && exit->signal == SIGBUS) {
    return {ErrorCode::Conflict,
            fmt::format("{} changed while it was read: try again when nothing writes to it",
                        path.string())};
  }
  const bool took_too_long = !exit || exit->signal == SIGXCPU || exit->signal == SIGKILL;
  if (took_too_long) {
    return {ErrorCode::Corrupt, fmt::format("{} was given up: looking into it took more than {} s",
                                            path.string(), kPatience.count())};
  }
  return {ErrorCode::Corrupt, fmt::format("{} cannot be read: the process that looked into it {}",
                                          path.string(), exit->describe())};
}

// The child is ours, but what it read may have made it say anything.
Result<ModelEntry> parse_answer(const fs::path& path, std::string_view line) {
  const Result<json::Value> value = json::parse(line, {.max_bytes = kOutputBytesMax});
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  if (object == nullptr) {
    return Error{ErrorCode::Internal,
                 fmt::format("the process that looked into {} said nothing that can be understood",
                             path.string())};
  }
  if (const json::Value* entry = object->if_contains("entry"))
    return contract::parse_model_entry(*entry, path.string());
  json::FieldReader reader(*object);
  const std::string message = reader.required_string("message");
  const std::int64_t code =
      reader.required_integer("code", 0, static_cast<std::int64_t>(ErrorCode::Unsupported));
  if (!reader.finish().empty() || message.empty())
    return Error{ErrorCode::Internal,
                 "the process that looks into files did not say what it found"};
  return Error{static_cast<ErrorCode>(code), message};
}

base::ProcessOptions make_options(const fs::path& program, const fs::path& path) {
  base::ProcessOptions options;
  options.program = program;
  options.arguments = {"look", path.string()};
  options.environment.emplace();
  if (const char* folders = std::getenv("LD_LIBRARY_PATH"))
    options.environment->push_back(fmt::format("LD_LIBRARY_PATH={}", folders));
  options.output_tail_bytes = kOutputBytesMax;
  options.dies_with_parent = true;
  return options;
}

void limit_resources() {
  const auto limit = [](auto resource, rlim_t value) {
    const rlimit both{value, value};
    ::setrlimit(resource, &both);
  };
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, kCpuSeconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limit(RLIMIT_DATA, kDataBytes);  // the mapped files themselves do not count
#endif
}

}  // namespace

Result<ModelEntry> look_into(const fs::path& path) {
  if (Status good = check_kind(path); !good.ok()) return good.error();
  const Result<fs::path> program = find_program();
  if (!program.ok()) return program.error();
  base::ProcessOptions options = make_options(*program, path);
  const char* folders = std::getenv("LD_LIBRARY_PATH");
  base::ConfinementRules rules =
      base::rules_to_run(*program, folders != nullptr ? folders : std::string_view());
  allow_model(path, rules);
  Result<std::shared_ptr<const base::Confinement>> confinement = base::Confinement::prepare(rules);
  if (!confinement.ok()) return confinement.error();
  options.confinement = confinement.take();
  const Result<std::unique_ptr<base::Process>> child = base::Process::spawn(options);
  if (!child.ok()) return child.error();
  const std::optional<base::ExitStatus> exit = (*child)->wait_for(kPatience);
  if (!exit) (*child)->stop(std::chrono::milliseconds(0));
  if (!exit || exit->signal != 0 || (exit->code != 0 && exit->code != kExitRefused))
    return gave_up(path, exit);
  return parse_answer(path, last_line((*child)->output_tail()));
}

int run_look(const fs::path& path) {
  limit_resources();
  json::Object answer;
  const Result<ModelEntry> facts = read_facts(path);
  if (facts.ok()) {
    answer["entry"] = contract::to_json(*facts);
  } else {
    answer["code"] = static_cast<int>(facts.error().code);
    answer["message"] = facts.error().message;
  }
  std::fputs((json::serialize(answer) + "\n").c_str(), stdout);
  std::fflush(stdout);
  // Without the work that usually follows: this process holds nothing that must be put in order.
  ::_exit(facts.ok() ? 0 : kExitRefused);
}

void allow_model(const fs::path& model, base::ConfinementRules& rules) {
  rules.readable.push_back(model);
  std::error_code error;
  if (fs::is_directory(model, error)) {
    std::size_t links = 0;
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(model, options, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code ignored;
      if (!at->is_symlink(ignored)) continue;
      rules.readable.push_back(at->path());
      if (++links == kFilesAllowedMax) return;
    }
    return;
  }
  for (const std::string_view name : side_file_names())
    rules.readable.push_back(model.parent_path() / name);
  // The other parts of a split file have its name up to the number.
  const std::string name = model.filename().string();
  const std::size_t of = name.rfind("-of-");
  if (of == std::string::npos || of < 5) return;
  const std::string begin = name.substr(0, of - 5);
  for (fs::directory_iterator at(model.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    if (rules.readable.size() > kFilesAllowedMax) return;
    if (at->path().filename().string().starts_with(begin)) rules.readable.push_back(at->path());
  }
}

}  // namespace llorch::catalog
