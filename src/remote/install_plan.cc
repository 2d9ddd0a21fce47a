#include "remote/install_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/digest.h"
#include "base/utf8.h"
#include "remote/ssh.h"
#include "remote/ssh_failure.h"

namespace llorch::remote {
namespace {

constexpr std::size_t kVersionDigits = 16;
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kMaxNameBytes = 64;
constexpr std::size_t kMaxFiles = 64;

// The versions' folders by their length; the links are shorter. What runs is asked of ls, in one
// process for all; the kernel writes " (deleted)" behind a program that is there no more.
constexpr std::string_view kListScript =
    "cd .local/lib/llorch 2>/dev/null || { echo llorch:end; exit 0; };"
    " echo llorch:current $(readlink current); echo llorch:previous $(readlink previous);"
    " for d in ????????????????; do echo llorch:version $d; sha256sum -- $d/* 2>/dev/null; done;"
    " sha256sum -- in/* 2>/dev/null; f=$(pwd -P);"
    " ls -l /proc/[0-9]*/exe 2>/dev/null | while read -r l; do"
    " case \"$l\" in *\" -> $f/\"*) l=${l#*\" -> $f/\"}; echo \"llorch:runs $l\";; esac; done;"
    " echo llorch:end";

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_file_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= kMaxNameBytes && is_plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
}

std::string_view version_of(std::string_view path) {
  return path.substr(0, path.find('/'));
}

// Only what we put there ourselves: everything else stays out of our scripts.
bool is_our_path(std::string_view path) {
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view folder = path.substr(0, slash);
  const std::string_view name = path.substr(slash + 1);
  return folder == "in" ? is_hex(name, kHashDigits)
                        : is_hex(folder, kVersionDigits) && is_file_name(name);
}

template <class Each>
void for_each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    each(line);
  }
}

// "HASH  PATH", as sha256sum prints it.
std::vector<Installed::File> read_hashes(std::string_view output) {
  std::vector<Installed::File> files;
  for_each_line(output, [&](std::string_view line) {
    if (line.size() < kHashDigits + 2) return;
    const std::string_view hash = line.substr(0, kHashDigits);
    const std::string_view path = line.substr(kHashDigits + 2);
    if (is_hex(hash, kHashDigits) && is_our_path(path))
      files.push_back({std::string(path), std::string(hash)});
  });
  return files;
}

bool holds(const std::vector<Installed::File>& files, std::string_view path,
           std::string_view hash) {
  return std::any_of(files.begin(), files.end(), [&](const Installed::File& file) {
    return file.path == path && file.sha256 == hash;
  });
}

bool is_whole(const Manifest& manifest, const std::vector<Installed::File>& files) {
  return std::all_of(manifest.files.begin(), manifest.files.end(), [&](const ProgramFile& file) {
    return holds(files, manifest.version + "/" + file.name, file.sha256);
  });
}

std::string in_folder() {
  return fmt::format("cd {}", kInstallFolder);
}

// A link is never missing and never half a name: the new one takes the old one's place.
std::string link_step(std::string_view link, std::string_view version) {
  return fmt::format(" && rm -f {0}.new && ln -s {1} {0}.new && mv -T {0}.new {0}", link, version);
}

std::string assemble(const Manifest& manifest, const std::map<std::string, std::string>& sources) {
  const std::string& version = manifest.version;
  std::string script = in_folder() + fmt::format(" && rm -rf {0}.new && mkdir {0}.new", version);
  for (const ProgramFile& file : manifest.files)
    script += fmt::format(
        " && {{ ln {0} {1}.new/{2} 2>/dev/null || cp {0} {1}.new/{2}; }} && chmod 755 {1}.new/{2}",
        sources.at(file.sha256), version, file.name);
  return script + fmt::format(" && rm -rf {0} && mv -T {0}.new {0} && sha256sum -- {0}/*", version);
}

}  // namespace

Result<Manifest> make_manifest(std::vector<ProgramFile> files) {
  std::sort(files.begin(), files.end(),
            [](const ProgramFile& a, const ProgramFile& b) { return a.name < b.name; });
  if (files.empty() || files.size() > kMaxFiles)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a version has 1 to {} programs, found {}", kMaxFiles, files.size())};
  std::string lines;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ProgramFile& file = files[i];
    if (!is_file_name(file.name) || !is_hex(file.sha256, kHashDigits) ||
        (i > 0 && files[i - 1].name == file.name))
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("{} cannot be sent to a host: expected names of letters, digits and . _ -, "
                      "each once, with a SHA-256",
                      base::quoted(file.name))};
    lines += file.sha256 + " " + file.name + "\n";
  }
  return Manifest{base::sha256_hex(lines).substr(0, kVersionDigits), std::move(files)};
}

std::string_view list_script() {
  return kListScript;
}

Result<Installed> parse_listing(std::string_view output) {
  Installed installed;
  bool has_ended = false;
  const auto read_version = [](std::string_view line, std::string_view mark) -> std::string {
    if (!line.starts_with(mark)) return {};
    const std::string_view version = line.substr(mark.size());
    return is_hex(version, kVersionDigits) ? std::string(version) : std::string();
  };
  for_each_line(output, [&](std::string_view line) {
    if (line == "llorch:end") has_ended = true;
    if (auto version = read_version(line, "llorch:current "); !version.empty())
      installed.current = version;
    if (auto version = read_version(line, "llorch:previous "); !version.empty())
      installed.previous = version;
    if (auto version = read_version(line, "llorch:version "); !version.empty())
      installed.versions.push_back(version);
    if (constexpr std::string_view kRuns = "llorch:runs "; line.starts_with(kRuns)) {
      const std::string_view path = line.substr(kRuns.size());
      const std::string_view program = path.substr(0, path.find(' '));
      if (is_our_path(program)) installed.running.emplace_back(program);
    }
  });
  if (!has_ended)
    return Error{ErrorCode::Corrupt,
                 "the host did not list its programs to the end; it said:\n" + last_lines(output)};
  installed.files = read_hashes(output);
  return installed;
}

InstallPlan plan_install(const Manifest& manifest, const Installed& there) {
  InstallPlan plan;
  const std::string& version = manifest.version;
  if (!is_whole(manifest, there.files)) {
    std::map<std::string, std::string> sources;  // by hash
    for (const Installed::File& file : there.files) sources.emplace(file.sha256, file.path);
    for (const ProgramFile& file : manifest.files) {
      if (!sources.emplace(file.sha256, "in/" + file.sha256).second) continue;
      plan.to_send.push_back(file);
      plan.bytes_to_send += file.bytes;
    }
    plan.assemble_script = assemble(manifest, sources);
  }
  if (there.current != version) {
    plan.switch_script = in_folder();
    if (!there.current.empty()) plan.switch_script += link_step("previous", there.current);
    plan.switch_script += link_step("current", version);
  }
  const std::string& kept = there.current == version ? there.previous : there.current;
  // Whoever runs starts others from its own folder: a manager its workers and their keepers.
  const auto runs = [&there](std::string_view old) {
    return std::any_of(there.running.begin(), there.running.end(),
                       [old](const std::string& path) { return version_of(path) == old; });
  };
  plan.is_new_version =
      !plan.switch_script.empty() ||
      std::any_of(there.running.begin(), there.running.end(), [&](const std::string& path) {
        return path.ends_with("/pool-managerd") && version_of(path) != version;
      });
  plan.clean_script = in_folder() + " && rm -rf in";
  for (const std::string& old : there.versions)
    if (old != version && old != kept && !runs(old)) plan.clean_script += " " + old;
  return plan;
}

std::string receive_script(const ProgramFile& file) {
  // Removed first: an old one may be linked into a version whose program runs.
  return fmt::format(
      "umask 077; mkdir -p {0}/in && cd {0} && rm -f in/{1} && cat > in/{1}; sha256sum -- in/{1}",
      kInstallFolder, file.sha256);
}

Status check_received(const ProgramFile& file, std::string_view output) {
  if (holds(read_hashes(output), "in/" + file.sha256, file.sha256)) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("{} did not arrive whole: expected SHA-256 {}, the host said:\n{}",
                           file.name, file.sha256, last_lines(output))};
}

Status check_assembled(const Manifest& manifest, std::string_view output) {
  if (is_whole(manifest, read_hashes(output))) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("version {} is not whole on the host, which said:\n{}", manifest.version,
                           last_lines(output))};
}

Status check_first_run(std::string_view host, const base::ExitStatus& exit,
                       std::string_view output) {
  constexpr int kOfSsh = 255;      // the connection broke, or a signal ended the program there
  constexpr int kSignalled = 128;  // and more: a shell's word for the same
  if (exit.success()) return ok_status();
  const std::string said = last_lines(output);
  if (exit.signal != 0 || exit.code >= kSignalled) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("llorch-pool on {} was ended before it could say its version ({}{}){}",
                             host, exit.code == kOfSsh ? "the connection broke, or: " : "",
                             exit.describe(), said.empty() ? "" : ":\n" + said)};
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("our programs do not run on {}; they were built for this machine's "
                           "libraries. scripts/build_portable.sh makes programs that need none; "
                           "LLORCH_HOST_PROGRAMS names their folder. It said:\n{}",
                           host, said)};
}

Result<std::string> roll_back_script(const Installed& there) {
  if (there.previous.empty() || there.previous == there.current)
    return Error{ErrorCode::NotFound, "no earlier version of our programs is on the host"};
  std::string script = in_folder() + link_step("current", there.previous);
  if (!there.current.empty()) script += link_step("previous", there.current);
  return script;
}

}  // namespace llorch::remote
