#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "base/terminal.h"

namespace llorch::cli {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kMemoryFault = 256 * kMiB;  // the built-in model and a cache do not fit
constexpr std::int64_t kMemoryNote = 4 * kGiB;     // a model of 7 billion weights does not fit
constexpr std::int64_t kDiskFault = 512 * kMiB;
constexpr std::int64_t kDiskNote = 10 * kGiB;
constexpr std::uint64_t kDescriptorsFault = 256;
constexpr std::uint64_t kDescriptorsNote = 4096;
constexpr std::int64_t kOldestTime = 1'767'225'600;  // 2026-01-01: this program is younger
constexpr int kOldestDriver = 580;                   // that runs CUDA 13
constexpr const char* kInstallDriver =
    "install driver 580 or later (Ubuntu: `apt install nvidia-driver-580`; Debian, whose own is "
    "older: `apt install nvidia-open` from NVIDIA's repository), then reboot; `nvidia-smi` must "
    "list the card";
constexpr unsigned kOthersMayWrite = 022;
constexpr unsigned kOthersMayAnything = 077;

Diagnosis judge_processor(const MachineFacts& facts) {
  const std::string& isa = facts.host.isa;
  Diagnosis said{"processor", Verdict::Ok,
                 fmt::format("{}, {}, {} of {} threads usable", facts.host.cpu, isa,
                             facts.host.cores, facts.host.threads),
                 ""};
  if (isa == "AVX-512" || isa == "AVX2" || isa == "NEON") return said;
  said.verdict = Verdict::Note;
  said.mend =
      "models run, but slowly: the fast kernels need AVX2 and FMA; in a virtual machine let it see "
      "the host's processor (qemu: -cpu host)";
  return said;
}

// Of what there should be enough: below what it is worth a note, and below what a fault.
template <class Number>
struct Enough {
  Number note = 0;
  Number fault = 0;
};
template <class Number>
Diagnosis judge_amount(std::string subject, std::string found, Number amount,
                       const Enough<std::type_identity_t<Number>>& enough, std::string mend) {
  if (amount >= enough.note) return {std::move(subject), Verdict::Ok, std::move(found), ""};
  return {std::move(subject), amount < enough.fault ? Verdict::Fault : Verdict::Note,
          std::move(found), std::move(mend)};
}

Diagnosis judge_memory(const MachineFacts& facts) {
  const contract::HostInfo& host = facts.host;
  return judge_amount(
      "memory",
      fmt::format("{} free of {}", base::human_bytes(host.memory_free_bytes),
                  base::human_bytes(host.memory_total_bytes)),
      host.memory_free_bytes, {.note = kMemoryNote, .fault = kMemoryFault},
      "end what is not needed (`ps aux --sort=-rss | head`); `llorch-pool plan MODEL` says what a "
      "model takes before it is loaded");
}

Diagnosis judge_limits(const MachineFacts& facts) {
  std::vector<std::string> tight;
  if (facts.cgroup.cpus && *facts.cgroup.cpus < facts.host.threads)
    tight.push_back(fmt::format("{:.3g} of {} processors", *facts.cgroup.cpus, facts.host.threads));
  if (facts.cgroup.memory_bytes && *facts.cgroup.memory_bytes < facts.machine_memory_bytes)
    tight.push_back(fmt::format("{} of {} memory", base::human_bytes(*facts.cgroup.memory_bytes),
                                base::human_bytes(facts.machine_memory_bytes)));
  if (tight.empty()) return {"limits", Verdict::Ok, "no control group holds it below the machine"};
  return {"limits", Verdict::Note,
          fmt::format("the control group allows {}", fmt::join(tight, " and ")),
          "plans follow these limits; to lift them: CPUQuota= and MemoryMax= of the unit, --cpus "
          "and --memory of the container"};
}

Diagnosis judge_descriptors(const MachineFacts& facts) {
  return judge_amount(
      "descriptors",
      fmt::format("{} files at once, up to {}", facts.soft_descriptors, facts.hard_descriptors),
      facts.hard_descriptors, {.note = kDescriptorsNote, .fault = kDescriptorsFault},
      fmt::format(
          "connections follow it; raise the hard limit to {} or more: LimitNOFILE= of a unit, or "
          "\"* hard nofile 65536\" in /etc/security/limits.conf and a new login",
          kDescriptorsNote));
}

Diagnosis judge_disk(const MachineFacts& facts) {
  const std::int64_t free = facts.host.disk_free_bytes;
  const std::string& folder =
      facts.places.empty() ? facts.program_folder : facts.places.front().path;
  return judge_amount(
      "disk", fmt::format("{} free at {}", base::human_bytes(free), folder), free,
      {.note = kDiskNote, .fault = kDiskFault},
      "`llorch-pool models prune` shows what can go; LLORCH_HOME moves everything to another disk");
}

// "580" of "580.65.06"; 0 where it does not say.
int driver_number(const std::string& version) {
  int number = 0;
  std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

Diagnosis judge_gpu(const MachineFacts& facts) {
  const contract::HostInfo& host = facts.host;
  if (host.gpus.empty()) {
    if (!facts.has_nvidia_card)
      return {"gpu", Verdict::Note, "no NVIDIA card; the processor computes", ""};
    return {"gpu", Verdict::Fault,
            fmt::format("there is an NVIDIA card, but {}",
                        host.gpu_note.empty() ? "the driver shows none" : host.gpu_note),
            kInstallDriver};
  }
  std::vector<std::string> cards;
  for (const contract::GpuInfo& gpu : host.gpus)
    cards.push_back(fmt::format("{} ({} free of {})", gpu.name,
                                base::human_bytes(gpu.vram_free_bytes),
                                base::human_bytes(gpu.vram_total_bytes)));
  Diagnosis said{"gpu", Verdict::Ok,
                 fmt::format("{}, driver {}", fmt::join(cards, ", "), host.gpus.front().driver),
                 ""};
  const int driver = driver_number(host.gpus.front().driver);
  if (facts.has_cuda_worker && driver > 0 && driver < kOldestDriver) {
    said.verdict = Verdict::Fault;
    said.found += fmt::format(": older than {}, which worker-orcd's CUDA 13 needs", kOldestDriver);
    said.mend = kInstallDriver;
  }
  if (!facts.has_cuda_worker) {
    said.verdict = Verdict::Note;
    said.mend = fmt::format(
        "worker-orcd is not in {}, so nothing uses it: `make cuda` builds it where CUDA 13 is",
        facts.program_folder);
  }
  return said;
}

Diagnosis judge_programs(const MachineFacts& facts) {
  if (facts.lacking.empty())
    return {"programs", Verdict::Ok, fmt::format("all in {}", facts.program_folder), ""};
  return {"programs", Verdict::Fault,
          fmt::format("{} not in {}", fmt::join(facts.lacking, ", "), facts.program_folder),
          "llorch starts its helpers from its own folder: install all programs together (`make "
          "install`)"};
}

Diagnosis judge_port(const PortFacts& port) {
  Diagnosis said{fmt::format("port {}", port.port), Verdict::Ok, "", ""};
  switch (port.state) {
    case PortFacts::State::Free:
      said.found = fmt::format("free for {}", port.program);
      break;
    case PortFacts::State::Ours:
      said.found = fmt::format("{} of this home listens", port.program);
      break;
    case PortFacts::State::Taken:
      said.verdict = Verdict::Note;
      said.found = fmt::format("taken, not by {} of this home", port.program);
      said.mend = fmt::format(
          "`ss -ltnp 'sport = :{}'` shows by whom; commands then use another port by themselves, "
          "a service needs `port = N` in its section of config.toml",
          port.port);
      break;
    case PortFacts::State::Unknown:
      said.verdict = Verdict::Fault;
      said.found = "cannot be listened on at 127.0.0.1";
      said.mend = "the loopback interface must be up: `ip link set lo up`";
      break;
  }
  return said;
}

Diagnosis judge_clock(const MachineFacts& facts) {
  if (facts.epoch_seconds < kOldestTime) {
    return {"clock", Verdict::Fault, "is before 2026: certificates and deadlines do not hold",
            "`timedatectl set-ntp true`, or `date -s` with the right time"};
  }
  if (facts.is_clock_synchronised && !*facts.is_clock_synchronised) {
    return {"clock", Verdict::Note, "plausible, but nothing keeps it right",
            "hosts of a fleet should agree within seconds: `timedatectl set-ntp true`, or install "
            "chrony"};
  }
  return {"clock", Verdict::Ok,
          facts.is_clock_synchronised ? "synchronised" : "plausible; the kernel says no more", ""};
}

Diagnosis judge_ssh(const MachineFacts& facts) {
  if (facts.ssh_program.empty()) {
    return {"ssh", Verdict::Note, "no ssh on the PATH",
            "`llorch up HOST` needs it: `apt install openssh-client`"};
  }
  if (facts.has_ssh_agent) return {"ssh", Verdict::Ok, facts.ssh_program + ", an agent runs", ""};
  return {
      "ssh", Verdict::Note,
      fmt::format("{}, no agent{}", facts.ssh_program, facts.has_ssh_key_file ? "" : " and no key"),
      facts.has_ssh_key_file
          ? "a key with a passphrase needs one: `eval \"$(ssh-agent)\" && ssh-add`"
          : "for `llorch up HOST`: `ssh-keygen -t ed25519 && ssh-copy-id HOST`"};
}

Diagnosis judge_places(const MachineFacts& facts) {
  std::vector<std::string> found;
  std::vector<std::string> mends;
  Verdict worst = Verdict::Ok;
  for (const PlaceFacts& place : facts.places) {
    const auto say = [&](Verdict verdict, std::string what, std::string mend) {
      worst = std::max(worst, verdict);
      found.push_back(fmt::format("{} {}", place.path, what));
      mends.push_back(std::move(mend));
    };
    if (!place.is_mine) {
      say(Verdict::Fault, "belongs to another user",
          fmt::format("`chown -R $(id -un) {}`, or another LLORCH_HOME", place.path));
    } else if (!place.can_write) {
      say(Verdict::Fault, place.exists ? "cannot be written to" : "cannot be made",
          fmt::format("`chmod u+rwx {}`, or another LLORCH_HOME", place.path));
    } else if (place.exists && (place.mode & kOthersMayWrite) != 0) {
      say(Verdict::Fault, fmt::format("may be written by others ({:04o})", place.mode),
          fmt::format("`chmod 700 {}`", place.path));
    } else if (place.exists && (place.mode & kOthersMayAnything) != 0) {
      say(Verdict::Note, fmt::format("may be looked into by others ({:04o})", place.mode),
          fmt::format("`chmod 700 {}`", place.path));
    }
  }
  if (found.empty()) {
    const bool any = std::any_of(facts.places.begin(), facts.places.end(),
                                 [](const PlaceFacts& place) { return place.exists; });
    return {"home", Verdict::Ok,
            any ? "this user's alone" : "not there yet; made for this user alone on first use", ""};
  }
  return {"home", worst, fmt::format("{}", fmt::join(found, "; ")),
          fmt::format("{}", fmt::join(mends, "; "))};
}

Diagnosis judge_config(const MachineFacts& facts) {
  if (!facts.config_error.empty()) {
    return {"config", Verdict::Fault, facts.config_error,
            "no program starts with it; every key with its meaning: packaging/config.toml"};
  }
  return {"config", Verdict::Ok,
          facts.has_config ? facts.config_file
                           : fmt::format("{} is not there: defaults", facts.config_file),
          ""};
}

Diagnosis judge_confinement(const MachineFacts& facts) {
  Diagnosis said{"confinement", Verdict::Ok, facts.confinement, ""};
  if (facts.confines_files && facts.confines_ports && facts.confines_calls) return said;
  said.verdict = Verdict::Note;
  said.mend =
      "workers run with fewer walls around them: Linux 6.7 or later with landlock among "
      "/sys/kernel/security/lsm, and seccomp, offer all";
  return said;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok:
      return "ok";
    case Verdict::Note:
      return "note";
    case Verdict::Fault:
      return "fault";
  }
  return "fault";
}

std::vector<Diagnosis> judge_machine(const MachineFacts& facts) {
  std::vector<Diagnosis> all = {judge_processor(facts),   judge_memory(facts), judge_limits(facts),
                                judge_descriptors(facts), judge_disk(facts),   judge_gpu(facts),
                                judge_programs(facts)};
  for (const PortFacts& port : facts.ports) all.push_back(judge_port(port));
  for (Diagnosis (*judge)(const MachineFacts&) :
       {judge_clock, judge_ssh, judge_places, judge_config, judge_confinement})
    all.push_back(judge(facts));
  for (Diagnosis& diagnosis : all) {
    diagnosis.found = base::printable(diagnosis.found);
    diagnosis.mend = base::printable(diagnosis.mend);
  }
  return all;
}

std::size_t count_verdicts(const std::vector<Diagnosis>& diagnoses, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(diagnoses.begin(), diagnoses.end(),
                    [verdict](const Diagnosis& one) { return one.verdict == verdict; }));
}

std::string doctor_text(const std::vector<Diagnosis>& diagnoses, std::size_t width, bool color) {
  constexpr std::size_t kVerdictColumns = 7;  // "fault  "
  std::size_t subject_columns = 0;
  for (const Diagnosis& diagnosis : diagnoses)
    subject_columns = std::max(subject_columns, diagnosis.subject.size() + 2);
  const std::size_t indent = kVerdictColumns + subject_columns;
  std::string text;
  for (const Diagnosis& diagnosis : diagnoses) {
    const base::Color paint = diagnosis.verdict == Verdict::Ok     ? base::Color::Green
                              : diagnosis.verdict == Verdict::Note ? base::Color::Yellow
                                                                   : base::Color::Red;
    const std::string name(verdict_name(diagnosis.verdict));
    text += base::paint(name, paint, color) + std::string(kVerdictColumns - name.size(), ' ');
    text += fmt::format("{:<{}}{}\n", diagnosis.subject, subject_columns,
                        base::wrap(diagnosis.found, width, indent));
    if (diagnosis.mend.empty()) continue;
    text += std::string(indent, ' ') +
            base::paint(base::wrap(diagnosis.mend, width, indent), base::Color::Dim, color) + "\n";
  }
  const auto count = [](std::size_t number, std::string_view what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  text += fmt::format("\n{}, {}\n", count(count_verdicts(diagnoses, Verdict::Fault), "fault"),
                      count(count_verdicts(diagnoses, Verdict::Note), "note"));
  return text;
}

}  // namespace llorch::cli
