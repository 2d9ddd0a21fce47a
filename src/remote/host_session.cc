#include "remote/host_session.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/digest.h"
#include "base/json.h"
#include "remote/service_plan.h"

namespace llorch::remote {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kConnectPatience{30'000};
constexpr milliseconds kScriptPatience{60'000};
constexpr milliseconds kSendPatience{1'800'000};
constexpr milliseconds kStartPatience{60'000};
constexpr milliseconds kTunnelPatience{5'000};
constexpr milliseconds kStopPatience{240'000};  // beyond what the pool itself allows
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
// Both must be there, the others only where they were built.
constexpr std::array<std::string_view, 3> kNeeded = {"llorch-pool", "pool-managerd", "llorch-cpud"};
constexpr std::array<std::string_view, 1> kWelcome = {"worker-orcd"};

Result<std::string> hash_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  base::Digest digest;
  std::string block(kBlockBytes, '\0');
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0)
    digest.add(std::string_view(block.data(), static_cast<std::size_t>(in.gcount())));
  if (!in.eof()) return Error{ErrorCode::Internal, fmt::format("{} cannot be read", file.string())};
  return digest.finish_hex();
}

std::string own_machine() {
  utsname name{};
  return ::uname(&name) == 0 ? name.machine : "";
}

// The C library that programs built here ask for at most: our own.
int own_glibc_minor() {
  const std::string_view version = ::gnu_get_libc_version();  // "2.36"
  int minor = 31;
  const std::size_t dot = version.find('.');
  if (dot != std::string_view::npos)
    std::from_chars(version.data() + dot + 1, version.data() + version.size(), minor);
  return minor;
}

StepProblem problem_of(const Error& error) {
  return {error.message, false};
}

Error failure_of(std::string_view what, const SshHost& host, const SshOutcome& outcome) {
  const std::string said = last_lines(outcome.output);
  return {ErrorCode::Unavailable,
          fmt::format("{} on {} {}{}", what, host.name(), outcome.exit.describe(),
                      said.empty() ? "" : ":\n" + said)};
}

// The last line of the output that is a JSON object: what comes before may be a login script's.
std::optional<json::Object> find_object(std::string_view output) {
  std::optional<json::Object> found;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (!line.starts_with('{')) continue;
    if (Result<json::Value> value = json::parse(line); value.ok() && value->is_object())
      found = std::move(value->get_object());
  }
  return found;
}

std::string text_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? std::string(json::view(value->get_string()))
                                                : std::string();
}

// Whether a tunnel comes out somewhere. ssh makes one without a word where the other sshd forbids
// it, and closes each connection that is made through it: so one is made. A silent one may lead
// over a slow link.
bool leads_somewhere(const fs::path& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.native().size() >= sizeof address.sun_path) return false;
  std::copy(socket.native().begin(), socket.native().end(), address.sun_path);
  const int end = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (end < 0) return false;
  constexpr std::string_view kAsk = "GET /health HTTP/1.0\r\n\r\n";
  bool leads = ::connect(end, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
               ::send(end, kAsk.data(), kAsk.size(), MSG_NOSIGNAL) > 0;
  if (leads) {
    pollfd look{.fd = end, .events = POLLIN, .revents = 0};
    char first = 0;
    if (::poll(&look, 1, static_cast<int>(kTunnelPatience.count())) > 0)
      leads = ::recv(end, &first, 1, 0) == 1;
  }
  ::close(end);
  return leads;
}

}  // namespace

Result<std::vector<ProgramFile>> find_programs(const fs::path& folder) {
  std::vector<ProgramFile> files;
  const auto add = [&](std::string_view name, bool is_needed) -> Status {
    const fs::path source = folder / name;
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(source, error);
    if (error && !is_needed) return ok_status();
    if (error) {
      return Error{ErrorCode::NotFound,
                   fmt::format("{} is not there; hosts need it: build it, or name another folder "
                               "with LLORCH_HOST_PROGRAMS",
                               source.string())};
    }
    Result<std::string> hash = hash_of(source);
    if (!hash.ok()) return hash.error();
    files.push_back({std::string(name), hash.take(), static_cast<std::int64_t>(bytes), source});
    return ok_status();
  };
  for (const std::string_view name : kNeeded)
    if (Status added = add(name, true); !added.ok()) return added.error();
  for (const std::string_view name : kWelcome)
    if (Status added = add(name, false); !added.ok()) return added.error();
  return files;
}

Result<fs::path> find_program_folder(const fs::path& folder, const std::string& machine) {
  const std::string_view architecture = machine == "aarch64" ? "arm64" : "x86-64";
  const bool has_name = machine == "aarch64" || machine == "x86_64";
  std::error_code error;
  const fs::path portable = folder / architecture / "bin";
  if (has_name && fs::is_directory(portable, error)) return portable;
  if (machine == own_machine()) return folder;
  return Error{ErrorCode::NotFound,
               fmt::format("there are no programs for {} in {}; scripts/build_portable.sh makes "
                           "them, LLORCH_HOST_PROGRAMS names their folder",
                           machine, folder.string())};
}

HostSession::HostSession(fs::path ssh, SshHost host, fs::path programs)
    : ssh_(std::move(ssh)), host_(std::move(host)), programs_(std::move(programs)) {}

HostSession::~HostSession() = default;

StepOutcome HostSession::connect(FirstContact first_contact) {
  if (is_connected()) return std::nullopt;
  forwarded_.clear();
  master_.reset();
  SshMaster::Started started = SshMaster::start(ssh_, host_, first_contact, kConnectPatience);
  if (started.master == nullptr)
    return StepProblem{started.failure.sentence, started.failure.needs_a_person};
  master_ = std::move(started.master);
  return std::nullopt;
}

bool HostSession::is_connected() {
  return master_ != nullptr && !master_->has_ended();
}

bool HostSession::stays_connected(milliseconds patience) {
  return master_ != nullptr && !master_->has_ended(patience);
}

void HostSession::disconnect() {
  if (!forwarded_.empty() && is_connected()) {
    // A master that stays must not keep our tunnel.
    if (const Result<SshWords> words = cancel_forward_words(host_, forwarded_); words.ok())
      std::ignore = run_ssh(ssh_, {.words = *words, .input_file = {}});
  }
  forwarded_.clear();
  master_.reset();
  std::error_code ignored;
  fs::remove(host_.tunnel_socket(), ignored);
}

Result<SshOutcome> HostSession::run_script(std::string_view script, milliseconds patience,
                                           const fs::path& input) {
  return run_ssh(ssh_,
                 {.words = script_words(host_, script), .patience = patience, .input_file = input});
}

Result<SshOutcome> HostSession::run(const RemoteCommand& command, milliseconds patience) {
  const Result<SshWords> words = exec_words(host_, command, Terminal::No);
  if (!words.ok()) return words.error();
  return run_ssh(ssh_, {.words = *words, .patience = patience, .input_file = {}});
}

Result<std::vector<Finding>> HostSession::look() {
  const Result<SshOutcome> answer = run_script(preflight_script(), kScriptPatience);
  if (!answer.ok()) return answer.error();
  const Result<HostFacts> facts = parse_preflight(answer->output);
  if (!facts.ok()) return facts.error();
  facts_ = *facts;
  HostNeeds needs;
  needs.machines = {facts->machine};
  const Result<fs::path> folder = find_program_folder(programs_, facts->machine);
  if (!folder.ok()) needs.machines = {own_machine()};
  // Programs for other machines are built to run on old systems, those beside us for ours.
  if (folder.ok() && *folder == programs_) needs.min_glibc_minor = own_glibc_minor();
  if (folder.ok()) {
    const Result<std::vector<ProgramFile>> files = find_programs(*folder);
    if (!files.ok()) return files.error();
    for (const ProgramFile& file : *files) needs.needed_bytes += file.bytes;
  }
  return judge_host(host_.name(), *facts, needs);
}

Result<Installed> HostSession::list() {
  const Result<SshOutcome> answer = run_script(list_script(), kScriptPatience);
  if (!answer.ok()) return answer.error();
  return parse_listing(answer->output);
}

Status HostSession::send_files(const InstallPlan& plan, const OnFile& on_file) {
  for (const ProgramFile& file : plan.to_send) {
    on_file(file);
    const Result<SshOutcome> sent = run_script(receive_script(file), kSendPatience, file.source);
    if (!sent.ok()) return sent.error();
    if (!sent->success()) return failure_of("receiving " + file.name, host_, *sent);
    if (Status whole = check_received(file, sent->output); !whole.ok()) return whole;
  }
  return ok_status();
}

// Programs that want a library which is not there say so at once.
Status HostSession::check_runs(const std::string& version) {
  const Result<SshOutcome> answer = run_script(
      fmt::format("exec {}/{}/llorch-pool --version", kInstallFolder, version), kScriptPatience);
  if (!answer.ok()) return answer.error();
  return check_first_run(host_.name(), answer->exit, answer->output);
}

HostSession::InstallOutcome HostSession::install(const OnFile& on_file) {
  if (!facts_) {
    if (const auto findings = look(); !findings.ok()) return {problem_of(findings.error())};
  }
  const Result<fs::path> folder = find_program_folder(programs_, facts_->machine);
  if (!folder.ok()) return {StepProblem{folder.error().message, true}};
  Result<std::vector<ProgramFile>> files = find_programs(*folder);
  if (!files.ok()) return {StepProblem{files.error().message, true}};
  const Result<Manifest> manifest = make_manifest(files.take());
  if (!manifest.ok()) return {problem_of(manifest.error())};
  const Result<Installed> there = list();
  if (!there.ok()) return {problem_of(there.error())};
  const InstallPlan plan = plan_install(*manifest, *there);
  return {perform(*manifest, plan, on_file), plan.is_new_version};
}

StepOutcome HostSession::perform(const Manifest& manifest, const InstallPlan& plan,
                                 const OnFile& on_file) {
  if (Status sent = send_files(plan, on_file); !sent.ok()) return problem_of(sent.error());
  if (!plan.assemble_script.empty()) {
    const Result<SshOutcome> made = run_script(plan.assemble_script, kSendPatience);
    if (!made.ok()) return problem_of(made.error());
    if (Status whole = check_assembled(manifest, made->output); !whole.ok())
      return problem_of(whole.error());
  }
  if (Status runs = check_runs(manifest.version); !runs.ok())
    return StepProblem{runs.error().message, runs.error().code == ErrorCode::Unsupported};
  if (!plan.switch_script.empty()) {
    const Result<SshOutcome> done = run_script(plan.switch_script, kScriptPatience);
    if (!done.ok()) return problem_of(done.error());
    if (!done->success()) return problem_of(failure_of("installing", host_, *done));
  }
  // It is installed: what cannot be removed now is removed the next time.
  std::ignore = run_script(plan.clean_script, kScriptPatience);
  return std::nullopt;
}

StepOutcome HostSession::roll_back() {
  const Result<Installed> there = list();
  if (!there.ok()) return problem_of(there.error());
  const Result<std::string> script = roll_back_script(*there);
  if (!script.ok()) return problem_of(script.error());
  const Result<SshOutcome> done = run_script(*script, kScriptPatience);
  if (!done.ok()) return problem_of(done.error());
  if (!done->success()) return problem_of(failure_of("going back", host_, *done));
  return std::nullopt;
}

Result<SshOutcome> HostSession::order_start() {
  constexpr int kUsage = 2;
  const auto start = [this](std::vector<std::string> words) {
    return run({.words = std::move(words), .environment = {}}, kStartPatience);
  };
  Result<SshOutcome> done = start({"llorch-pool", "start", "--replace", "--json"});
  if (!done.ok() || done->exit != base::ExitStatus{.code = kUsage}) return done;
  // A version from before this flag, to which was gone back: the newer one did not come up.
  return start({"llorch-pool", "start", "--json"});
}

Result<RemotePool> HostSession::start_pool() {
  // Whatever becomes of that: a pool that runs is found, and none is started as a process.
  const Result<SshOutcome> service = run_script(start_service_script(), kStartPatience);
  const ServiceAnswer answered = parse_service(service.ok() ? service->output : std::string());
  const Result<SshOutcome> done = order_start();
  if (!done.ok()) return done.error();
  const std::optional<json::Object> answer = find_object(done->output);
  if (!done->success() || !answer) return failure_of("llorch-pool start", host_, *done);
  RemotePool pool{text_in(*answer, "url"), text_in(*answer, "socket"), answered.sentence};
  if (pool.url.empty()) return failure_of("llorch-pool start", host_, *done);
  return pool;
}

StepOutcome HostSession::stop_pool() {
  const Result<SshOutcome> done =
      run({.words = {"llorch-pool", "stop"}, .environment = {}}, kStopPatience);
  if (!done.ok()) return problem_of(done.error());
  if (!done->success()) return problem_of(failure_of("llorch-pool stop", host_, *done));
  const Result<SshOutcome> ended = run_script(end_service_script(), kStartPatience);
  return ended.ok() ? std::nullopt : StepOutcome(problem_of(ended.error()));
}

Result<Tunnel> HostSession::open_tunnel(const RemotePool& pool) {
  // Where sockets are not forwarded, the pool's port is.
  constexpr std::string_view kScheme = "http://";
  std::vector<std::string> ends;
  if (!pool.socket.empty()) ends.push_back(pool.socket);
  if (pool.url.starts_with(kScheme)) ends.push_back(pool.url.substr(kScheme.size()));
  std::string said;
  const auto tunnel_to = [this](const std::string& end) {
    const bool is_port = !end.starts_with('/');
    return Tunnel{host_.tunnel_socket(), is_port ? end.substr(end.rfind(':') + 1) : std::string()};
  };
  for (const std::string& end : ends) {
    if (end == forwarded_) return tunnel_to(end);
    const Result<SshWords> words = forward_words(host_, end);
    if (!words.ok()) {
      said = words.error().message;
      continue;
    }
    const Result<SshOutcome> done = run_ssh(ssh_, {.words = *words, .input_file = {}});
    if (!done.ok()) return done.error();
    if (done->success() && leads_somewhere(host_.tunnel_socket())) {
      forwarded_ = end;
      return tunnel_to(end);
    }
    said = last_lines(done->output);
    if (!done->success()) continue;
    said = fmt::format("nothing answers at {}, or its sshd forbids the tunnel", end);
    if (const Result<SshWords> undo = cancel_forward_words(host_, end); undo.ok())
      std::ignore = run_ssh(ssh_, {.words = *undo, .input_file = {}});
  }
  return Error{ErrorCode::Unavailable,
               fmt::format("no tunnel to the pool of {} could be made: {}", host_.name(), said)};
}

}  // namespace llorch::remote
