#include "pool/pool_manager.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/job_border.h"
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
constexpr milliseconds kFailurePause{200};

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

// What a job threw fails that job; the thread goes on.
void log_failure(const Error& error) {
  logger().error("a job of the pool manager failed", {{"error", error.message}});
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
    for (const Work& one : work) {
      const Result<bool> done = base::run_job<bool>("in the pool manager", [&one] {
        one();
        return true;
      });
      if (!done.ok()) log_failure(done.error());
    }
  }

  int fd() const { return wake_; }  // readable when there is work

 private:
  const int wake_;
  std::mutex mutex_;
  std::deque<Work> work_;
};

Status make_folders(const base::Home& home) {
  for (const std::filesystem::path& folder : {home.state, home.workers(), home.logs()}) {
    if (Status made = base::make_private_folder(folder); !made.ok()) return made;
  }
  return ok_status();
}

// What older versions left readable for others: the files with state, and our folders of them. The
// home itself may be anybody's folder, and stays.
void tighten(const base::Home& home) {
  for (const std::filesystem::path& folder : {home.workers(), home.logs(), home.chunks()}) {
    base::make_private(folder);
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error))
      base::make_private(at->path());
  }
  for (const char* name : {"pool.json", "pool.lock", "measurements.json"})
    base::make_private(home.state / name);
  base::make_private(home.catalog_file());
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
    owner_queue_.post([this, answer, &work] {
      try {
        answer->set_value(work(table_));
      } catch (...) {
        answer->set_exception(std::current_exception());  // whoever asked has a border of its own
      }
    });
    return answer->get_future().get();
  }

  Result<contract::PoolWorker> start(const contract::StartWorkerRequest& request) {
    auto answer = std::make_shared<std::promise<Result<contract::PoolWorker>>>();
    errands_.post([this, answer, &request] {
      answer->set_value(base::run_job<contract::PoolWorker>(
          "while a worker was started", [&]() -> Result<contract::PoolWorker> {
            const Result<PreparedStart> prepared = prepare(request);
            if (!prepared.ok()) return prepared.error();
            return ask(
                [&prepared](WorkerTable& table) { return table.spawn(*prepared, Clock::now()); });
          }));
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
        const Result<PreparedStart> prepared = base::run_job<PreparedStart>(
            "while a worker was planned", [&] { return prepare(request); });
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
      const Result<bool> waited =
          base::run_job<bool>("while the workers were looked after", [this] { return wait(); });
      if (waited.ok()) continue;
      log_failure(waited.error());
      std::this_thread::sleep_for(kFailurePause);  // and not at once the same again
    }
  }

  // One look at every worker, then until there is something to do.
  bool wait() {
    const Clock::time_point now = Clock::now();
    const Clock::time_point wake = table_.advance(now);
    std::vector<pollfd> files = {{owner_queue_.fd(), POLLIN, 0}};
    for (const int file : table_.files()) files.push_back({file, POLLIN, 0});
    const auto patience = std::chrono::ceil<milliseconds>(wake - now);
    ::poll(files.data(), files.size(),
           static_cast<int>(std::max<std::int64_t>(0, patience.count())));
    return true;
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
  tighten(options.home);
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
