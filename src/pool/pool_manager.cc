#include "pool/pool_manager.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file_lock.h"
#include "base/log.h"
#include "pool/probe.h"
#include "pool/worker_launch.h"
#include "pool/worker_record.h"
#include "pool/worker_table.h"

namespace llorch::pool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kProbeThreads = 4;
constexpr milliseconds kLockPatience{500};
constexpr milliseconds kStopAllTick{20};

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

// Work for one thread, in the order it came. Callers wait for their answer or are bounded by the
// number of workers, so the queue needs no limit of its own.
class Queue {
 public:
  using Work = std::function<void()>;

  Queue() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    CHECK(wake_ >= 0, "no file descriptor left for the pool manager");
  }
  ~Queue() { ::close(wake_); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void post(Work work) {
    {
      const std::scoped_lock lock(mutex_);
      work_.push_back(std::move(work));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  }

  // Runs what is there.
  void drain() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t cleared = ::read(wake_, &count, sizeof count);
    std::deque<Work> work;
    {
      const std::scoped_lock lock(mutex_);
      work.swap(work_);
    }
    for (const Work& one : work) one();
  }

  int fd() const { return wake_; }  // readable when there is work

 private:
  const int wake_;
  std::mutex mutex_;
  std::deque<Work> work_;
};

Status make_folders(const base::Home& home) {
  for (const std::filesystem::path& folder : {home.state, home.workers(), home.logs()}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("{} cannot be made: {}", folder.string(), error.message())};
    }
  }
  return ok_status();
}

}  // namespace

// Three kinds of threads: the owner has the table; one does errands that may take milliseconds
// (memory plans, one after the other, so that two starts never count on the same memory); some
// probe workers. Errands and probes post their results to the owner.
class PoolManager::Impl {
 public:
  Impl(PoolManagerOptions options, std::unique_ptr<base::FileLock> lock)
      : options_(std::move(options)),
        lock_(std::move(lock)),
        table_(options_, hooks()),
        prober_(std::make_unique<Prober>(kProbeThreads, options_.sources->vram_of_process,
                                         [this](ProbeResult result) { take(std::move(result)); })) {
    table_.adopt(Clock::now());
    errand_thread_ = std::thread([this] { run_errands(); });
    owner_ = std::thread([this] { run(); });
  }

  // Workers stay as they are. Nobody may be inside a call.
  ~Impl() {
    errands_.post([this] { errands_end_ = true; });
    errand_thread_.join();
    owner_queue_.post([this] { end_ = true; });
    owner_.join();
    prober_.reset();  // what it still posts is nobody's
  }

  // Runs `work` on the owner's thread and waits for its answer.
  template <class Work>
  auto ask(Work work) -> std::invoke_result_t<Work, WorkerTable&> {
    // Shared: the answer is here before set_value has returned over there.
    auto answer = std::make_shared<std::promise<std::invoke_result_t<Work, WorkerTable&>>>();
    owner_queue_.post([this, answer, &work] { answer->set_value(work(table_)); });
    return answer->get_future().get();
  }

  Result<contract::PoolWorker> start(const contract::StartWorkerRequest& request) {
    auto answer = std::make_shared<std::promise<Result<contract::PoolWorker>>>();
    errands_.post([this, answer, &request] {
      const Result<PreparedStart> prepared = prepare(request);
      if (!prepared.ok()) return answer->set_value(prepared.error());
      answer->set_value(
          ask([&prepared](WorkerTable& table) { return table.spawn(*prepared, Clock::now()); }));
    });
    return answer->get_future().get();
  }

 private:
  Result<PreparedStart> prepare(const contract::StartWorkerRequest& request) {
    const PromisedMemory promised = ask([](WorkerTable& table) { return table.promised(); });
    return prepare_start(request, *options_.sources, promised);
  }

  TableHooks hooks() {
    TableHooks hooks;
    hooks.probe = [this](ProbeJob job) {
      if (prober_) prober_->submit(std::move(job));
    };
    hooks.plan = [this](std::string id, contract::StartWorkerRequest request) {
      errands_.post([this, id = std::move(id), request = std::move(request)] {
        const Result<PreparedStart> prepared = prepare(request);
        ask([&](WorkerTable& table) {
          table.take_plan(id, prepared, Clock::now());
          return true;
        });
      });
    };
    hooks.keep_measurement = [this](contract::PoolWorker worker, std::int64_t peak_bytes) {
      errands_.post(
          [this, worker = std::move(worker), peak_bytes] { keep_measurement(worker, peak_bytes); });
    };
    return hooks;
  }

  void keep_measurement(const contract::PoolWorker& worker, std::int64_t peak_bytes) const {
    const Result<contract::ModelEntry> model = options_.sources->find_model(worker.model);
    if (!model.ok()) return;  // gone since
    const Status kept =
        options_.sources->keep_measurement(*model, worker.backend, worker.planned, peak_bytes);
    if (!kept.ok()) {
      logger().warn("the measured memory was not kept",
                    {{"worker", worker.id}, {"error", kept.error().message}});
    }
  }

  void take(ProbeResult result) {
    owner_queue_.post([this, result = std::move(result)] { table_.take(result, Clock::now()); });
  }

  void run() {
    for (;;) {
      owner_queue_.drain();
      if (end_) return;
      const Clock::time_point now = Clock::now();
      const Clock::time_point wake = table_.advance(now);
      std::vector<pollfd> files = {{owner_queue_.fd(), POLLIN, 0}};
      for (const int file : table_.files()) files.push_back({file, POLLIN, 0});
      const auto patience = std::chrono::ceil<milliseconds>(wake - now);
      ::poll(files.data(), files.size(),
             static_cast<int>(std::max<std::int64_t>(0, patience.count())));
    }
  }

  void run_errands() {
    pollfd file{errands_.fd(), POLLIN, 0};
    while (!errands_end_) {
      ::poll(&file, 1, -1);
      errands_.drain();
    }
  }

  const PoolManagerOptions options_;
  const std::unique_ptr<base::FileLock> lock_;
  Queue owner_queue_;
  Queue errands_;
  bool end_ = false;          // the owner's
  bool errands_end_ = false;  // the errand thread's
  WorkerTable table_;         // the owner's
  std::unique_ptr<Prober> prober_;
  std::thread errand_thread_;
  std::thread owner_;
};

Result<std::unique_ptr<PoolManager>> PoolManager::start(PoolManagerOptions options) {
  if (Status made = make_folders(options.home); !made.ok()) return made.error();
  Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(pool_lock_file(options.home), kLockPatience);
  if (!lock.ok()) return lock.error().in("another pool manager runs");
  if (!options.sources) options.sources = system_sources(options.home, options.planner);
  return std::unique_ptr<PoolManager>(
      new PoolManager(std::make_unique<Impl>(std::move(options), lock.take())));
}

PoolManager::PoolManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PoolManager::~PoolManager() = default;

Result<contract::PoolWorker> PoolManager::start_worker(
    const contract::StartWorkerRequest& request) {
  return impl_->start(request);
}

Result<contract::PoolWorker> PoolManager::stop_worker(
    std::string_view id, std::optional<std::chrono::seconds> patience) {
  return impl_->ask(
      [id, patience](WorkerTable& table) { return table.stop(id, patience, Clock::now()); });
}

Result<contract::PoolWorker> PoolManager::restart_worker(std::string_view id) {
  return impl_->ask([id](WorkerTable& table) { return table.restart(id, Clock::now()); });
}

Status PoolManager::worker_ready(const contract::ReadyCallback& callback, std::string_view mark) {
  return impl_->ask([&](WorkerTable& table) { return table.ready(callback, mark, Clock::now()); });
}

std::vector<contract::PoolWorker> PoolManager::workers() const {
  return impl_->ask([](WorkerTable& table) { return table.show(); });
}

Result<contract::PoolWorker> PoolManager::worker(std::string_view id) const {
  return impl_->ask([id](WorkerTable& table) { return table.show(id); });
}

bool PoolManager::uses_model(std::string_view model) const {
  return impl_->ask([model](WorkerTable& table) { return table.uses_model(model); });
}

void PoolManager::stop_all(const std::function<void(int running)>& on_progress) {
  std::vector<std::string> running = impl_->ask([](WorkerTable& table) {
    table.close();
    return table.running();
  });
  for (const std::string& id : running) std::ignore = stop_worker(id, std::nullopt);
  for (;;) {
    running = impl_->ask([](WorkerTable& table) { return table.running(); });
    if (on_progress) on_progress(static_cast<int>(running.size()));
    if (running.empty()) return;
    std::this_thread::sleep_for(kStopAllTick);
  }
}

std::vector<contract::PoolWorker> read_worker_records(const base::Home& home) {
  std::vector<contract::PoolWorker> workers;
  for (const std::filesystem::path& file : find_records(home)) {
    const Result<WorkerRecord> record = read_record(file);
    if (!record.ok()) continue;  // the manager moves it aside when it starts
    const TimePoint now = Clock::now();
    const PoolTiming timing;
    WorkerFacts facts = facts_of(*record, now, timing);
    contract::PoolWorker shown = show_worker(*record, facts);
    if (const auto note = read_run_note(file, record->mark)) shown.pid = note->process.pid;
    if (has_process(facts) && !base::is_running(record->keeper)) {
      facts.uses_gpu = false;
      facts.end = find_end(file, *record);
      std::ignore = next_step(facts, now, timing);
      shown = show_worker(*record, facts);
    }
    workers.push_back(std::move(shown));
  }
  return workers;
}

catalog::FindUse find_uses(const base::Home& home) {
  return [home](std::string_view model) -> std::string {
    for (const contract::PoolWorker& worker : read_worker_records(home)) {
      const bool has_ended = worker.state == contract::PoolWorkerState::Stopped ||
                             worker.state == contract::PoolWorkerState::Failed;
      if (worker.model != model || has_ended) continue;
      return fmt::format("{0} is run by {1}: `llorch-pool worker stop {1}` first", model,
                         worker.id);
    }
    return {};
  };
}

}  // namespace llorch::pool
