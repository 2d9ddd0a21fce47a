// Durable submissions per second: the job store with its group commit against the same store with
// one commit for each, in the same folder, one after the other. Every number counts what the
// listener has heard to be durable: synced to the disk.
//
//   store_bench FOLDER [SECONDS]
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "job_store/sqlite_store.h"

namespace {

using llorch::fleet::JobId;
using llorch::fleet::SubmittedRecord;
using llorch::fleet::WriteOutcome;
using SteadyClock = std::chrono::steady_clock;
namespace store = llorch::job_store;

constexpr std::size_t kBodyBytes = 1024;

double ms_since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

double percentile(std::vector<double>& values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

// Clients that each have one submission under way, as HTTP handlers do.
struct Run {
  const char* name;
  std::size_t num_clients;
  std::size_t max_group;
};

struct Client {
  SteadyClock::time_point since;
  std::uint64_t next = 0;
};

class Submitter {
 public:
  Submitter(const std::filesystem::path& file, const Run& run) : clients_(run.num_clients) {
    auto opened =
        store::open_sqlite_store({.file = file, .max_group = run.max_group},
                                 [this](const store::Written& written) { hear(written); });
    if (!opened.ok()) {
      fmt::print(stderr, "store_bench: {}\n", opened.error().message);
      std::exit(1);
    }
    store_ = opened.take();
    listening_ = store_.get();
  }

  // Submissions per second, and how long each took to be durable.
  void run(const Run& run, double seconds) {
    const auto start = SteadyClock::now();
    for (std::size_t i = 0; i < clients_.size(); ++i) submit(i);
    while (ms_since(start) < seconds * 1000)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    is_over_ = true;
    const double took_ms = ms_since(start);
    const std::size_t count = num_durable_;
    const std::size_t num_groups = num_groups_;
    store_.reset();
    fmt::print(
        "{:<34} {:>8.0f} /s   group {:>6.1f}   durable after {:>6.2f} ms p50, {:>7.2f} ms p99\n",
        run.name, static_cast<double>(count) / took_ms * 1000,
        static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(num_groups, 1)),
        percentile(latency_ms_, 0.5), percentile(latency_ms_, 0.99));
  }

 private:
  void submit(std::size_t client) {
    Client& each = clients_[client];
    each.since = SteadyClock::now();
    SubmittedRecord record;
    record.key = {client};
    record.model_name = "tinyllama";
    if (!listening_->append({JobId{client, each.next++}, 0, record, true, body_})) std::abort();
  }

  // On the store's thread: each client submits again as soon as it has heard.
  void hear(const store::Written& written) {
    ++num_groups_;
    for (const auto& record : written.records) {
      if (record.outcome != WriteOutcome::Durable) std::abort();
      ++num_durable_;
      const auto client = static_cast<std::size_t>(record.job.high);
      latency_ms_.push_back(ms_since(clients_[client].since));
      if (!is_over_) submit(client);
    }
  }

  const std::shared_ptr<const std::string> body_ =
      std::make_shared<const std::string>(std::string(kBodyBytes, 'x'));
  std::vector<Client> clients_;     // the store's thread's, once all have begun
  std::vector<double> latency_ms_;  // the store's thread's
  std::atomic<std::size_t> num_durable_ = 0;
  std::atomic<std::size_t> num_groups_ = 0;
  std::atomic<bool> is_over_ = false;
  std::unique_ptr<store::Store> store_;
  store::Store* listening_ = nullptr;  // the same, also while it ends
};

// What the disk itself takes for one sync of 4 KiB.
void measure_sync(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "sync";
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::string page(4096, 'x');
  std::vector<double> took_ms;
  for (int i = 0; i < 200; ++i) {
    if (::pwrite(fd, page.data(), page.size(), i * 4096) != 4096) std::abort();
    const auto start = SteadyClock::now();
    ::fdatasync(fd);
    took_ms.push_back(ms_since(start));
  }
  ::close(fd);
  fmt::print("fdatasync of 4 KiB: {:.2f} ms p50, {:.2f} ms p99\n", percentile(took_ms, 0.5),
             percentile(took_ms, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: store_bench FOLDER [SECONDS]\n");
    return 2;
  }
  const std::filesystem::path folder = std::filesystem::path(argv[1]) / "store_bench";
  const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 5;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  measure_sync(folder);
  fmt::print("submissions with a body of {} bytes, synced (WAL, synchronous=FULL):\n", kBodyBytes);
  for (const Run& run :
       {Run{"one commit each, 1 client", 1, 1}, Run{"one commit each, 512 clients", 512, 1},
        Run{"group commit, 1 client", 1, 512}, Run{"group commit, 64 clients", 64, 512},
        Run{"group commit, 512 clients", 512, 512}}) {
    const std::filesystem::path file = folder / "llorch.db";
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(file.string() + suffix);
    Submitter(file, run).run(run, seconds);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
