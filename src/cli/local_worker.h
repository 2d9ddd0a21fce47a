// A worker process of our own for one command: started beside us, ready when its callback says so,
// gone when we are.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace llorch::cli {

struct LocalWorkerOptions {
  std::filesystem::path program;
  std::string model;                   // --model as the worker takes it
  std::vector<std::string> arguments;  // further flags
  std::chrono::milliseconds load_patience{600'000};
};

// Owned by the thread that starts it, which must live as long; interrupt() may come from any other.
class LocalWorker {
 public:
  // Starts the program and returns at once.
  static Result<std::unique_ptr<LocalWorker>> start(LocalWorkerOptions options);
  ~LocalWorker();  // stops
  LocalWorker(const LocalWorker&) = delete;
  LocalWorker& operator=(const LocalWorker&) = delete;

  // Where it answers ("http://127.0.0.1:41234"), once it has loaded its model; calls `on_tick`
  // about ten times a second until then, with how much is loaded where that is known. Cancelled
  // after interrupt(); LoadFailed with the worker's own last line when it ended instead;
  // DeadlineExceeded.
  Result<std::string> wait_ready(
      const std::function<void(std::optional<double> progress)>& on_tick);

  int pid() const { return process_->pid(); }

  // Ends the worker now, and with it whatever waits for it.
  void interrupt();

  // Lets it end by itself, but not for long.
  void stop();

  // "llorch-cpud was ended by signal 9 (Killed): last line of its output", or nothing while it
  // runs. Waits a moment, since a connection breaks before its process has ended.
  std::string obituary();

 private:
  class Callback;
  LocalWorker(LocalWorkerOptions options, std::unique_ptr<Callback> callback,
              std::unique_ptr<base::Process> process);

  const LocalWorkerOptions options_;
  std::unique_ptr<Callback> callback_;  // the server that hears of readiness
  std::unique_ptr<base::Process> process_;
};

}  // namespace llorch::cli
