#include "remote/ssh_run.h"

#include <fmt/format.h>

#include <system_error>

namespace llorch::remote {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Questions to a master on this machine.
constexpr milliseconds kLocalPatience{5000};
constexpr milliseconds kLook{10};
constexpr milliseconds kEndPatience{1000};

Result<std::unique_ptr<base::Process>> spawn(const fs::path& ssh, const SshCall& call) {
  base::ProcessOptions options;
  options.program = ssh;
  options.arguments = call.words;
  options.input_file = call.input_file;
  options.output_tail_bytes = call.max_output_bytes;
  options.on_output = call.on_output;
  options.dies_with_parent = true;
  return base::Process::spawn(options);
}

}  // namespace

Result<fs::path> find_ssh(const base::Environment& environment) {
  const char* path = environment("PATH");
  fs::path ssh = base::find_program("ssh", path != nullptr ? path : "");
  if (!ssh.empty()) return ssh;
  return Error{
      ErrorCode::NotFound,
      "ssh is not on the PATH; other hosts are reached through it: install openssh-client"};
}

Result<SshOutcome> run_ssh(const fs::path& ssh, const SshCall& call) {
  Result<std::unique_ptr<base::Process>> process = spawn(ssh, call);
  if (!process.ok()) return process.error();
  const std::optional<base::ExitStatus> exit = (*process)->wait_for(call.patience);
  if (exit) return SshOutcome{*exit, (*process)->output_tail()};
  (*process)->stop(milliseconds(0));
  return Error{ErrorCode::DeadlineExceeded,
               fmt::format("ssh did not come to its end within {} ms; it said:\n{}",
                           call.patience.count(), last_lines((*process)->output_tail()))};
}

SshMaster::Started SshMaster::start(const fs::path& ssh, const SshHost& host,
                                    FirstContact first_contact, milliseconds patience) {
  std::unique_ptr<SshMaster> master(new SshMaster(ssh, host));
  std::error_code error;
  if (fs::exists(host.control_socket(), error)) {
    if (master->answers()) return {std::move(master), {}};
    fs::remove(host.control_socket(), error);
  }
  Result<std::unique_ptr<base::Process>> process =
      spawn(ssh, {.words = master_words(host, first_contact), .input_file = {}});
  if (!process.ok()) return {nullptr, {SshFailureKind::Other, process.error().message, false}};
  master->process_ = process.take();
  const auto until = std::chrono::steady_clock::now() + patience;
  // ssh gives the socket its name once it is logged in and listens.
  while (!fs::exists(host.control_socket(), error)) {
    if (master->has_ended(kLook)) return {nullptr, master->failure()};
    if (std::chrono::steady_clock::now() < until) continue;
    return {
        nullptr,
        {SshFailureKind::Unreachable,
         fmt::format("{} did not let us in within {} ms", host.name(), patience.count()), false}};
  }
  return {std::move(master), {}};
}

SshMaster::~SshMaster() {
  if (process_) process_->stop(kEndPatience);
}

bool SshMaster::answers() const {
  const Result<SshOutcome> outcome =
      run_ssh(ssh_, {.words = check_words(host_), .patience = kLocalPatience, .input_file = {}});
  return outcome.ok() && outcome->success();
}

bool SshMaster::has_ended(milliseconds patience) {
  if (process_) return process_->wait_for(patience).has_value();
  return !answers();
}

SshFailure SshMaster::failure() const {
  return explain_ssh_failure(host_.name(), process_ ? process_->output_tail() : std::string());
}

}  // namespace llorch::remote
