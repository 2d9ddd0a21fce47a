// Which programs a host lacks, and the steps that bring it to a version of ours. Pure: scripts and
// answers are values, for script_words (ssh.h).
//
//   .local/lib/llorch/VERSION/llorch-pool …   the files of one version, whole or not there
//   .local/lib/llorch/in/SHA256               what was sent and is not part of a version yet
//   .local/lib/llorch/current, previous       links to versions, replaced in one step
//
// A file counts as there when the host computed its hash, never by its name or size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace llorch::remote {

struct ProgramFile {
  std::string name;    // on the host
  std::string sha256;  // 64 hexadecimal digits, lower case
  std::int64_t bytes = 0;
  std::filesystem::path source;  // here
};

// A version is its files: its name is made from their names and hashes.
struct Manifest {
  std::string version;  // 16 hexadecimal digits
  std::vector<ProgramFile> files;
};

// InvalidArgument: no file, one twice, or a name other than [A-Za-z0-9][A-Za-z0-9._-]*.
Result<Manifest> make_manifest(std::vector<ProgramFile> files);

// What a host has.
struct Installed {
  struct File {
    std::string path;  // "VERSION/NAME", "in/SHA256"
    std::string sha256;
  };
  std::string current;  // a version, or nothing
  std::string previous;
  std::vector<std::string> versions;
  std::vector<File> files;
  std::vector<std::string> running;  // "VERSION/NAME" of programs that processes run
};

std::string_view list_script();
// Corrupt: the listing did not come to its end. Lines that are not ours are passed over.
Result<Installed> parse_listing(std::string_view output);

struct InstallPlan {
  std::vector<ProgramFile> to_send;  // by receive_script, each content once
  std::int64_t bytes_to_send = 0;
  std::string assemble_script;  // makes the version's folder; empty: it is there and whole
  std::string switch_script;    // makes it the current one; empty: it is
  // What runs there is another version, or was not this one until now.
  bool is_new_version = false;
  // For afterwards: leaves it, the one before it and those that processes run, nothing else.
  std::string clean_script;
};
InstallPlan plan_install(const Manifest& manifest, const Installed& there);

// Takes one file on its standard input and prints its hash.
std::string receive_script(const ProgramFile& file);
// Whether that hash, as printed, is the file's. Corrupt: what arrived is something else.
Status check_received(const ProgramFile& file, std::string_view output);
// The same for all files of a version, from what assemble_script printed.
Status check_assembled(const Manifest& manifest, std::string_view output);

// Whether our programs run there, from how `llorch-pool --version` of a version ended. Unsupported:
// they do not, and trying again is useless. Unavailable: ssh (255) or somebody there ended it
// before it could answer.
Status check_first_run(std::string_view host, const base::ExitStatus& exit,
                       std::string_view output);

// Exchanges `current` and `previous`. NotFound: there is no other version to go back to.
Result<std::string> roll_back_script(const Installed& there);

}  // namespace llorch::remote
