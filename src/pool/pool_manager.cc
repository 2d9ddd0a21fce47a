#include "pool/pool_manager.h"

#include <fmt/format.h>

#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/job_border.h"
#include "base/log.h"
#include "base/owner_loop.h"
#include "pool/probe.h"
#include "pool/record_facts.h"
#include "pool/worker_launch.h"
#include "pool/worker_record.h"
#include "pool/worker_table.h"

namespace llorch::pool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kProbeThreads = 4;
constexpr std::size_t kJobsMax = 8192;  // of the owner, and of the errands
constexpr milliseconds kLockPatience{500};
constexpr milliseconds kStopAllTick{20};

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

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
      : options_(std::move(options)), lock_(std::move(lock)) {
    owner_.ask([this] {
      prober_ = std::make_unique<Prober>(kProbeThreads, options_.sources->vram_of_process,
                                         [this](ProbeResult result) { take(std::move(result)); });
      table_.emplace(options_, hooks());
      table_->adopt(Clock::now());
    });
  }

  // Workers stay as they are. Nobody may be inside a call.
  ~Impl() {
    errands_.stop();  // they ask the owner
    if (options_.speeds != nullptr) save_speeds(true);
    owner_.stop();
    prober_.reset();  // what it still posts is refused
  }

  // Runs `work` on the owner's thread and waits for its answer.
  template <class Work>
  auto ask(Work work) -> std::invoke_result_t<Work, WorkerTable&> {
    return owner_.ask([this, &work] { return work(*table_); });
  }

  // Asks the worker who it is before anybody hears that it is ready: its build and device class are
  // then known from the first moment. One that does not say is ready all the same.
  Status take_callback(const contract::ReadyCallback& callback, std::string_view mark) {
    const Result<ProbeJob> question =
        ask([&](WorkerTable& table) { return table.first_question(callback, mark); });
    if (!question.ok()) return question.error();
    const ProbeResult answer = prober_->ask_now(*question);
    return ask([&](WorkerTable& table) {
      if (answer.health.ok()) table.take(answer, Clock::now());
      return table.ready(callback, mark, Clock::now());
    });
  }

  Result<contract::PoolWorker> start(const contract::StartWorkerRequest& request) {
    return errands_.ask([this, &request] {
      return base::run_job<contract::PoolWorker>(
          "while a worker was started", [&]() -> Result<contract::PoolWorker> {
            const Result<PreparedStart> prepared = prepare(request);
            if (!prepared.ok()) return prepared.error();
            return ask(
                [&prepared](WorkerTable& table) { return table.spawn(*prepared, Clock::now()); });
          });
    });
  }

 private:
  Result<PreparedStart> prepare(const contract::StartWorkerRequest& request) {
    const PromisedMemory promised = ask([](WorkerTable& table) { return table.promised(); });
    return prepare_start(request, *options_.sources, promised);
  }

  TableHooks hooks() {
    TableHooks hooks;
    hooks.probe = [this](ProbeJob job) { prober_->submit(std::move(job)); };
    hooks.plan = [this](std::string id, contract::StartWorkerRequest request) {
      send(errands_, [this, id = std::move(id), request = std::move(request)] {
        const Result<PreparedStart> prepared = base::run_job<PreparedStart>(
            "while a worker was planned", [&] { return prepare(request); });
        ask([&](WorkerTable& table) { table.take_plan(id, prepared, Clock::now()); });
      });
    };
    hooks.keep_measurement = [this](contract::PoolWorker worker, std::int64_t peak_bytes) {
      send(errands_, [this, worker = std::move(worker), peak_bytes] {
        keep_measurement(worker, peak_bytes);
      });
    };
    hooks.keep_speed = [this](contract::PoolWorker worker, std::vector<SpeedSample> samples,
                              double load_ms) {
      if (options_.speeds == nullptr) return;
      send(errands_, [this, worker = std::move(worker), samples = std::move(samples), load_ms] {
        options_.speeds->add(worker, samples);
        options_.speeds->add_load(worker, load_ms);
        save_speeds(load_ms > 0);
      });
    };
    return hooks;
  }

  void save_speeds(bool now) const {
    if (const Status saved = options_.speeds->save(now); !saved.ok())
      logger().warn("measured speeds were not kept", {{"error", saved.error().message}});
  }

  // What nobody waits for. A few jobs for each worker at most, so the queue has room until the end.
  static void send(base::OwnerLoop& loop, base::OwnerLoop::Job job) {
    if (!loop.post(std::move(job))) logger().debug("a job came after the end and is left out");
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
    send(owner_, [this, result = std::move(result)] { table_->take(result, Clock::now()); });
  }

  // One look at every worker, then until there is something to do.
  base::OwnerLoop::Rest look_after_workers() {
    if (!table_) return {};
    const Clock::time_point until = table_->advance(Clock::now());
    if (options_.on_look) options_.on_look(table_->show());
    return {.until = until, .files = table_->files()};
  }

  const PoolManagerOptions options_;
  const std::unique_ptr<base::FileLock> lock_;
  std::optional<WorkerTable> table_;  // the owner's, as the prober; made by its first job
  std::unique_ptr<Prober> prober_;
  // Last: they use the others.
  base::OwnerLoop owner_{"pool-owner", kJobsMax, [this] { return look_after_workers(); }};
  base::OwnerLoop errands_{"pool-errands", kJobsMax};
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
  return impl_->take_callback(callback, mark);
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
    contract::PoolWorker shown = describe_worker(*record, facts);
    if (const auto note = read_run_note(file, record->mark)) shown.pid = note->process.pid;
    if (has_process(facts) && !base::is_running(record->keeper)) {
      facts.uses_gpu = false;
      facts.end = find_end(file, *record);
      std::ignore = next_step(facts, now, timing);
      shown = describe_worker(*record, facts);
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
