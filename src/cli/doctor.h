// What this machine has and lacks for our programs: one look, and what it means. Private to cli/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/host_limits.h"
#include "contract/pool_info.h"

namespace llorch::cli {

// A port of ours as it was found.
struct PortFacts {
  std::uint16_t port = 0;
  std::string_view program;  // who listens there by default
  enum class State : std::uint8_t { Free, Ours, Taken, Unknown } state = State::Unknown;
};

// One folder or file of the home.
struct PlaceFacts {
  std::string path;
  bool exists = false;
  bool can_write = false;  // of one that is missing: the nearest folder above it
  bool is_mine = true;
  unsigned mode = 0;  // the permission bits
};

// What was seen, as values: judge_machine needs nothing else.
struct MachineFacts {
  contract::HostInfo host;  // processor, memory, disk at the models' folder, GPUs
  base::CgroupLimits cgroup;
  std::int64_t machine_memory_bytes = 0;  // without the control group's limit
  std::uint64_t soft_descriptors = 0;
  std::uint64_t hard_descriptors = 0;
  bool has_nvidia_card = false;      // on the bus, whatever the driver says
  bool has_cuda_worker = false;      // worker-orcd beside us
  std::vector<std::string> lacking;  // programs of ours that are not beside us
  std::string program_folder;        // where they were looked for
  std::vector<PortFacts> ports;
  std::int64_t epoch_seconds = 0;
  std::optional<bool> is_clock_synchronised;  // none: the kernel does not say
  std::string ssh_program;                    // empty: none on the PATH
  bool has_ssh_agent = false;
  bool has_ssh_key_file = false;
  std::vector<PlaceFacts> places;
  std::string config_file;
  bool has_config = false;
  std::string config_error;  // empty: it can be read, or is not there
  bool confines_files = false;
  bool confines_ports = false;
  bool confines_calls = false;
  std::string confinement;  // in words
};

enum class Verdict : std::uint8_t { Ok, Note, Fault };
std::string_view verdict_name(Verdict verdict);

struct Diagnosis {
  std::string subject;  // "processor", "memory", …: one word, always the same
  Verdict verdict = Verdict::Ok;
  std::string found;
  std::string mend;  // what to do; empty where there is nothing to do
};

// Looks, and changes nothing: opens sockets on loopback for a moment, reads files of the system.
MachineFacts look_at_machine(const base::Environment& environment, const base::Home& home);

// One diagnosis for each thing, in a fixed order. Pure.
std::vector<Diagnosis> judge_machine(const MachineFacts& facts);

std::size_t count_verdicts(const std::vector<Diagnosis>& diagnoses, Verdict verdict);

// The table for people: lines end before `width` where words allow it. Pure.
std::string doctor_text(const std::vector<Diagnosis>& diagnoses, std::size_t width, bool color);

}  // namespace llorch::cli
