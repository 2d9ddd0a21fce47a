// llorch-pool rexec: the other end of a command that came over ssh. Becomes that command, so that
// its output, exit code, terminal and signals are its own. Only our own programs call it.
#include <unistd.h>

#include <CLI/App.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/process.h"
#include "base/reader_watch.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "remote/remote_argv.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

// A path as it is; a name: beside this program, then on the PATH.
fs::path find(const std::string& program, const base::Environment& environment) {
  if (program.find('/') != std::string::npos) return program;
  std::error_code error;
  fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / program;
  if (fs::is_regular_file(beside, error)) return beside;
  const char* path = environment("PATH");
  const fs::path found = base::find_program(program, path != nullptr ? path : "");
  return found.empty() ? beside : found;
}

int become(const std::string& text, const base::Environment& environment) {
  Result<remote::RemoteCommand> command = remote::decode_remote(text);
  if (!command.ok()) return fail(command.error());
  // A terminal says itself that its user has gone; a pipe to sshd is to be watched.
  if (::isatty(STDOUT_FILENO) == 0)
    command->environment.push_back(std::string(base::kReaderVariable) + "=1");
  const fs::path program = find(command->words.front(), environment);
  return fail(base::become_program(program, command->words, command->environment));
}

}  // namespace

void add_rexec_command(CLI::App& app, PoolContext& context) {
  auto text = std::make_shared<std::string>();
  CLI::App* rexec = app.add_subcommand("rexec", "")->group("");
  rexec->add_option("COMMAND", *text)->required();
  rexec->callback([&context, text] {
    context.needs_home = false;
    context.chosen = [&context, text] { return become(*text, context.environment); };
  });
}

}  // namespace llorch::cli
