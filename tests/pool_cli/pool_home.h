// A home of its own for the programs, and the end of everything that was started in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "contract/pool_info.h"
#include "http/client.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::test {

// Waits until the condition holds; false after twenty seconds.
bool eventually(const std::function<bool()>& condition);

class PoolHome {
 public:
  PoolHome();
  ~PoolHome();  // stops the manager and asserts that no process is left
  PoolHome(const PoolHome&) = delete;
  PoolHome& operator=(const PoolHome&) = delete;

  std::filesystem::path path() const { return folder_.path(); }
  std::vector<std::string> environment() const;

  // llorch-pool with these arguments, in this home.
  ProgramOutcome pool(std::vector<std::string> arguments) const;
  // The same with --json: its standard output parsed.
  json::Value pool_json(std::vector<std::string> arguments) const;
  ProgramOutcome llorch(std::vector<std::string> arguments) const;

  std::vector<contract::PoolWorker> workers() const;
  std::vector<int> managers() const;  // processes of pool-managerd and `serve` in this home
  // As state/pool.json says; empty when it is not there.
  std::string url() const;
  int status_of(const http::ClientRequest& request) const;  // 0: nobody answers

 private:
  TempDir folder_;
  mutable std::vector<std::int64_t> seen_workers_;  // process ids
};

}  // namespace llorch::test
