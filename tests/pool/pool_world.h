// A pool of its own for a test: a home, the real programs, a hub to download from, and eyes for
// every process that belongs to it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "hub_simulator/hub_simulator.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::test {

// Polls until it is true; false after a time that is long even on a busy machine.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds patience = std::chrono::seconds(30));

enum class Role : std::uint8_t { Manager, Keeper, Worker, Other };

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  Role role = Role::Other;
  std::string command;
};

class PoolWorld {
 public:
  PoolWorld();
  ~PoolWorld();  // kills what is left
  PoolWorld(const PoolWorld&) = delete;
  PoolWorld& operator=(const PoolWorld&) = delete;

  const std::filesystem::path& home() const { return home_; }
  // llorch-pool with these arguments, to its end or in the background.
  ProgramOutcome cli(const std::vector<std::string>& arguments) const;
  std::unique_ptr<ChildProcess> start(const std::vector<std::string>& arguments) const;

  // What the commands say with --json.
  std::vector<contract::PoolWorker> workers() const;
  std::vector<contract::ModelEntry> models() const;
  static bool runs(const contract::PoolWorker& worker);  // neither stopped nor failed

  // A model of the user's own, and one on the hub.
  const std::filesystem::path& model_file() const { return model_file_; }
  std::string remote_ref() const;
  HubSimulator& hub() { return *hub_; }
  // Whether every file has the size and the hash that the entry claims.
  bool is_intact(const contract::ModelEntry& model) const;
  // In the model's first file, at the place that `where` chooses: which. Nothing when it has no
  // files below the home.
  std::optional<std::int64_t> flip_a_byte(const std::string& id, std::uint32_t where) const;

  // Every living process of this pool.
  std::vector<Process> processes() const;
  // Workers and keepers that the list of workers does not account for.
  std::vector<Process> strays() const;
  static bool is_alive(std::int64_t pid);

  // Whether the home is a small file system of its own, which can be filled.
  bool has_own_disk() const { return has_own_disk_; }

 private:
  std::vector<std::string> environment() const;

  TempDir folder_;
  std::filesystem::path home_;
  std::filesystem::path model_file_;
  std::unique_ptr<HubSimulator> hub_;
  std::uint16_t first_port_ = 0;
  bool has_own_disk_ = false;
};

// Fills the home's disk to the last byte for the time of its life.
class FullDisk {
 public:
  explicit FullDisk(const PoolWorld& world);
  ~FullDisk();
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

  bool is_full() const { return is_full_; }

 private:
  std::filesystem::path file_;
  bool is_full_ = false;
};

}  // namespace llorch::test
