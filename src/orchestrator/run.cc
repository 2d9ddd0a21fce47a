#include "orchestrator/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "api/daemon.h"
#include "api/daemon_address.h"
#include "api/service_notice.h"
#include "api/tls_door.h"
#include "audit/audit_log.h"
#include "base/file.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/own_program.h"
#include "base/version.h"
#include "contract/api_token.h"
#include "http/io_threads.h"
#include "http/server.h"
#include "http/url.h"
#include "http/work_threads.h"
#include "job_store/sqlite_store.h"
#include "orchestrator/answer_book.h"
#include "orchestrator/host_steps.h"
#include "orchestrator/joined_hosts.h"
#include "orchestrator/joined_pools.h"
#include "orchestrator/keys.h"
#include "orchestrator/local_pool.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/pools.h"
#include "orchestrator/relay.h"
#include "orchestrator/routes.h"
#include "orchestrator/run_options.h"
#include "remote/run_folder.h"
#include "remote/ssh_run.h"

namespace llorch::orchestrator {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kEndedToLearnFrom = 500;
constexpr int kWorkThreads = 4;
constexpr std::size_t kDescriptorReserve = 2048;  // for relays, polls, tunnels, the store
constexpr milliseconds kLastAnswers{2'000};
// One that was told to end has kLastAnswers, and then lets go of its port before its store.
constexpr milliseconds kLeasePatience{5'000};
constexpr milliseconds kForgetPause{30'000};  // between two looks at what is too old
constexpr int kForgetSlices = 16;             // at one look
constexpr std::string_view kAliasPrefix = "model.";

const base::Logger& logger() {
  static const base::Logger instance("orchestrator");
  return instance;
}

class OrchestratorProcess {
 public:
  OrchestratorProcess(std::string_view program, OrchestratorOptions options, base::Home home,
                      base::Environment environment)
      : program_(program),
        options_(std::move(options)),
        home_(std::move(home)),
        environment_(std::move(environment)),
        notify_socket_(environment_("NOTIFY_SOCKET")) {}

  int run() {
    if (Status started = start(); !started.ok()) {
      stop_parts();
      return api::report_failure(program_, started.error());
    }
    loop_.run(kForgetPause, [this] {
      base::keep_log_small(options_.log_file);
      door_->look(*server_);
      forget_old();
      return false;
    });
    return shut_down();
  }

 private:
  Status start() {
    for (const auto& folder : {home_.data, home_.state, home_.logs()}) {
      if (Status made = base::make_private_folder(folder); !made.ok()) return made;
    }
    if (Status opened = open_store(); !opened.ok()) return opened;
    if (Status opened = open_audit(); !opened.ok()) return opened;
    if (Status made = make_parts(); !made.ok()) return made;
    core_->start({.store = store_.get(),
                  .attempts = relays_.get(),
                  .answers = answers_.get(),
                  .pools = pools_.get(),
                  .io = io_.get(),
                  .threads = threads_.get()});
    if (Status listening = listen(); !listening.ok()) return listening;
    Result<Recovered> recovered = read_store();
    if (!recovered.ok()) return recovered.error();
    core_->recover(recovered.take());
    const std::string url = api::local_url(options_.host, server_->port(), door_->is_tls());
    const std::string socket = listen_unix();
    if (Status written = api::write_daemon_address(orchestrator_address_file(home_), url, socket,
                                                   true, options_.host);
        !written.ok())
      return written;
    if (Status told =
            audit_->append({.actor = "daemon",
                            .action = "daemon.start",
                            .object = url,
                            .detail = fmt::format("version {}, start {}", base::version(), boot_)});
        !told.ok())
      return told;
    logger().info("listening", {{"url", url},
                                {"store", store_file().string()},
                                {"boot", boot_},
                                {"version", base::version()}});
    fmt::print("{}: listening on {}\n", program_, url);
    std::fflush(stdout);
    api::send_service_notice(notify_socket_, fmt::format("READY=1\nSTATUS=listening on {}", url));
    return ok_status();
  }

  // Beyond loopback, this user's own commands come in by a socket: without a key, and whatever
  // names are in the certificate. Its path, or nothing.
  std::string listen_unix() {
    if (http::is_loopback(options_.host) && !door_->is_tls()) return {};
    const Result<std::filesystem::path> folder = remote::make_run_folder(home_, environment_);
    std::string path = folder.ok() ? (*folder / "orchestrator.sock").string() : "";
    const Status listening = folder.ok() ? server_->listen_unix(path) : Status(folder.error());
    if (listening.ok()) return path;
    logger().warn("there is no unix socket", {{"why", listening.error().message}});
    return {};
  }

  std::filesystem::path store_file() const {
    return options_.store.empty() ? home_.data / "llorch.db" : options_.store;
  }

  Status open_store() {
    job_store::SqliteOptions options;
    options.file = store_file();
    options.lease_patience = kLeasePatience;
    // Nothing is written before the orchestrator is there to hear of it.
    Result<std::unique_ptr<job_store::Store>> opened = job_store::open_sqlite_store(
        options, [this](job_store::Written written) { core_->note_written(std::move(written)); });
    if (!opened.ok()) return opened.error();
    store_ = opened.take();
    const Result<fleet::Boot> boot = store_->begin_boot();
    if (!boot.ok()) return boot.error();
    boot_ = *boot;
    return ok_status();
  }

  Status open_audit() {
    audit::LogOptions options;
    options.folder = home_.data;
    const Result<std::vector<fleet::Entry>> known = store_->list(fleet::Bucket::Audit);
    if (!known.ok()) return known.error();
    for (const fleet::Entry& entry : *known) {
      if (entry.key == audit::kAnchorKey) options.anchor = audit::anchor_from_text(entry.value);
    }
    options.keep_anchor = [store = store_.get()](const audit::Anchor& anchor) -> Status {
      const Result<fleet::Revision> kept =
          store->put(fleet::Bucket::Audit, audit::kAnchorKey, audit::to_text(anchor), std::nullopt);
      return kept.ok() ? ok_status() : Status(kept.error());
    };
    Result<std::unique_ptr<audit::AuditLog>> opened = audit::AuditLog::open(std::move(options));
    if (!opened.ok()) return opened.error();
    audit_ = opened.take();
    return ok_status();
  }

  Status make_parts() {
    const Result<std::string> pool_token = contract::read_api_token(options_.pool_token_file);
    if (!pool_token.ok()) return pool_token.error().in("--pool-token-file");
    fleet::FleetLimits limits;
    limits.jobs_max = options_.max_jobs;
    core_ = std::make_unique<Orchestrator>(limits, boot_);
    const PostEvent post = [core = core_.get()](fleet::Event event) {
      core->post(std::move(event));
    };
    Result<std::unique_ptr<KeyRing>> keys = KeyRing::open(*store_, post);
    if (!keys.ok()) return keys.error();
    keys_ = keys.take();
    threads_ = std::make_unique<http::WorkThreads>(kWorkThreads);
    io_ = std::make_unique<http::IoThreads>(options_.io_threads);
    PoolsOptions pools;
    pools.boot = boot_;
    pools.start_local = [local = LocalPoolOptions{
                             home_, options_.start_pool ? options_.pool : std::filesystem::path(),
                             *pool_token}] { return find_or_start_local_pool(local); };
    pools.on_worker_act = [audit = audit_.get()](const fleet::HostId& host, const WorkerAct& act) {
      audit->note({.actor = "host:" + host,
                   .action = std::string(act.action),
                   .object = host + "/" + act.worker,
                   .detail = "model " + act.model});
    };
    make_host_steps(post);
    pools.steps = steps_.get();
    pools_ = std::make_unique<Pools>(*core_, *io_, *threads_, std::move(pools));
    if (const auto folder = remote::make_run_folder(home_, environment_); folder.ok())
      joined_ = std::make_unique<JoinedPools>(*io_, *folder);
    answers_ = std::make_unique<AnswerBook>(*store_, *threads_, post);
    relays_ = std::make_unique<Relays>(*io_, *threads_, *answers_, post);
    return ok_status();
  }

  // Other hosts are reached where there is an ssh; without one this machine still works.
  void make_host_steps(const PostEvent& post) {
    Result<std::filesystem::path> ssh = remote::find_ssh(environment_);
    Result<std::filesystem::path> folder = remote::make_run_folder(home_, environment_);
    if (!ssh.ok() || !folder.ok()) {
      logger().warn("other hosts cannot be reached",
                    {{"why", ssh.ok() ? folder.error().message : ssh.error().message}});
      return;
    }
    const char* programs = environment_("LLORCH_HOST_PROGRAMS");
    steps_ = std::make_unique<SshHostSteps>(SshHostStepsOptions{
        .ssh = ssh.take(),
        .run_folder = folder.take(),
        .programs = programs != nullptr && *programs != '\0' ? std::filesystem::path(programs)
                                                             : base::own_folder(),
        .on_lost = [post](const fleet::HostId& host, std::string reason) {
          post(fleet::PoolLost{host, std::move(reason)});
        }});
  }

  Status listen() {
    if (!http::is_loopback(options_.host) && keys_->is_empty()) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("cannot listen on {}: others could use it without a key; start it on "
                      "127.0.0.1, make one with `llorch keys add NAME`, and start it again",
                      options_.host)};
    }
    Result<api::TlsDoor> door =
        api::TlsDoor::open(options_.tls, home_, "orchestrator", options_.host);
    if (!door.ok()) return door.error();
    door_ = door.take();
    const RouteParts parts{.core = *core_,
                           .answers = *answers_,
                           .relays = *relays_,
                           .pools = *pools_,
                           .keys = *keys_,
                           .store = *store_,
                           .threads = *threads_,
                           .joined = joined_.get(),
                           .audit = audit_.get(),
                           .request_shutdown = [this] { loop_.request_end(); },
                           .is_draining = [this] { return loop_.is_end_requested(); }};
    Result<std::unique_ptr<http::Server>> started = api::start_server(
        [&parts] { return make_router(parts); },
        {.host = options_.host,
         .port = options_.port,
         .any_port = options_.any_port,
         .api_token_file = {},
         .accepts_token =
             [keys = keys_.get()](std::string_view token) { return keys->is_good(token); },
         .on_stranger =
             [audit = audit_.get()](const std::string& key, const http::Request& request) {
               audit->note_refusal(key, request.path, "UNAUTHORIZED");
             },
         .allow_origins = options_.allow_origins,
         .paths_without_auth = paths_without_auth(),
         .tls_certificate_file = door_->certificate_file(),
         .tls_key_file = door_->key_file(),
         .io_threads = options_.io_threads,
         .descriptor_reserve = kDescriptorReserve});
    if (!started.ok()) return started.error();
    server_ = started.take();
    relays_->run_beside([server = server_.get()](std::function<http::Task<void>()> body) {
      return server->spawn(std::move(body));
    });
    return ok_status();
  }

  Result<Recovered> read_store() {
    Recovered recovered;
    if (options_.local_pool)
      recovered.hosts.push_back({std::string(kLocalHost), fleet::HostKind::Local});
    const Result<std::vector<fleet::Entry>> hosts = store_->list(fleet::Bucket::Hosts);
    if (!hosts.ok()) return hosts.error();
    for (const fleet::Entry& host : *hosts) {
      const std::optional<fleet::KeyId> key = joined_by(host.value);
      if (key && !joined_) continue;
      recovered.hosts.push_back({host.key, key ? fleet::HostKind::Joined : fleet::HostKind::Ssh});
      if (key) expect_joined(host.key, *key);
    }
    for (const StoredKey& key : keys_->list()) recovered.keys.emplace_back(key.id, key.facts);
    if (Status read = read_usage(recovered); !read.ok()) return read.error();
    if (Status read = read_aliases(); !read.ok()) return read.error();
    if (Status read = read_host_models(recovered); !read.ok()) return read.error();
    if (Status read = read_ended(recovered); !read.ok()) return read.error();
    const Status loaded = store_->load_open(
        [&recovered](fleet::JobRecords job) { recovered.jobs.push_back(std::move(job)); });
    if (!loaded.ok()) return loaded.error();
    return recovered;
  }

  // A pool that had joined comes again by itself.
  void expect_joined(const fleet::HostId& host, fleet::KeyId key) {
    const PoolAddress address = joined_->open(host, key);
    core_->run_on_owner([pools = pools_.get(), host, address] { pools->connect(host, address); });
  }

  // How long answers are is known again after a start from those that there were.
  Status read_ended(Recovered& recovered) const {
    fleet::JobFilter completed;
    completed.states = {fleet::JobState::Completed};
    completed.limit = kEndedToLearnFrom;
    Result<fleet::JobPage> page = store_->list_jobs(completed, {});
    if (!page.ok()) return page.error();
    recovered.ended = std::move(page->jobs);
    std::reverse(recovered.ended.begin(), recovered.ended.end());
    return ok_status();
  }

  Status read_usage(Recovered& recovered) const {
    const Result<std::vector<fleet::Entry>> entries = store_->list(fleet::Bucket::Usage);
    if (!entries.ok()) return entries.error();
    for (const fleet::Entry& entry : *entries) {
      const std::optional<fleet::KeyId> key = fleet::key_id_from_text(entry.key);
      const Result<fleet::KeyUsage> usage = fleet::usage_from_text(entry.value);
      if (!key || !usage.ok()) {
        logger().warn("stored usage of a key cannot be read: it begins anew", {{"key", entry.key}});
        continue;
      }
      recovered.usage.emplace_back(*key, *usage);
    }
    return ok_status();
  }

  // What hosts had when they were last seen.
  Status read_host_models(Recovered& recovered) const {
    const Result<std::vector<fleet::Entry>> entries = store_->list(fleet::Bucket::HostModels);
    if (!entries.ok()) return entries.error();
    for (const fleet::Entry& entry : *entries) {
      if (!entry.value.empty()) {
        recovered.host_models.emplace_back(entry.key, entry.value);
      } else if (Status gone = store_->erase(fleet::Bucket::HostModels, entry.key, std::nullopt);
                 !gone.ok()) {
        return gone;
      }
    }
    return ok_status();
  }

  // Which hashes of models mean the same; before the first pool is asked.
  Status read_aliases() {
    const Result<std::vector<fleet::Entry>> entries = store_->list(fleet::Bucket::Settings);
    if (!entries.ok()) return entries.error();
    for (const fleet::Entry& entry : *entries) {
      if (!entry.key.starts_with(kAliasPrefix)) continue;
      const auto hash =
          fleet::model_hash_from_text(std::string_view(entry.key).substr(kAliasPrefix.size()));
      const auto stands_for = fleet::model_hash_from_text(entry.value);
      if (hash && stands_for) pools_->models().add_alias({*hash, *stands_for});
    }
    return ok_status();
  }

  void forget_old() const {
    for (int i = 0; i < kForgetSlices; ++i) {
      job_store::Retention retention;
      retention.now_ms = wall_now_ms();
      const Result<bool> more = store_->forget(retention);
      if (!more.ok()) logger().warn("old jobs stay", {{"why", more.error().message}});
      if (!more.ok() || !*more) return;
    }
  }

  int shut_down() {
    loop_.request_end();
    logger().info("stopping: accepted jobs are stored and go on at the next start");
    api::send_service_notice(notify_socket_, "STOPPING=1");
    std::error_code ignored;
    std::filesystem::remove(orchestrator_address_file(home_), ignored);
    core_->post(fleet::ShuttingDown{});  // those who wait on their connections hear of it
    std::jthread stopper;
    const bool is_done = loop_.run_until_signal(stopper, "drain", [this] {
      if (joined_) joined_->close_all();
      server_->drain(kLastAnswers);
    });
    if (!is_done) std::_Exit(api::kExitInterrupted);  // jobs are stored; nothing else is to save
    stopper.join();
    audit_->note({.actor = "daemon", .action = "daemon.stop", .object = "orchestratord"});
    stop_parts();
    logger().info("stopped");
    return 0;
  }

  // Those who ask before those who answer.
  void stop_parts() {
    if (server_) server_->stop();  // with the attempts that run there
    if (relays_) relays_->run_beside(nullptr);
    server_.reset();
    if (steps_) steps_->stop();  // its last answers are still heard, and may be answered by orders
    if (io_) io_->stop();
    if (core_) core_->stop();
    threads_.reset();
    audit_.reset();
    store_.reset();  // writes what waits; what it says then nobody hears
  }

  const std::string program_;
  const OrchestratorOptions options_;
  const base::Home home_;
  const base::Environment environment_;
  const char* const notify_socket_;
  api::MainLoop loop_;  // before every thread
  fleet::Boot boot_ = 0;
  std::unique_ptr<Orchestrator> core_;
  std::unique_ptr<job_store::Store> store_;
  std::unique_ptr<audit::AuditLog> audit_;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<http::WorkThreads> threads_;
  std::unique_ptr<http::IoThreads> io_;
  std::unique_ptr<SshHostSteps> steps_;
  std::unique_ptr<JoinedPools> joined_;
  std::unique_ptr<Pools> pools_;
  std::unique_ptr<AnswerBook> answers_;
  std::unique_ptr<Relays> relays_;
  std::optional<api::TlsDoor> door_;      // once it listens
  std::unique_ptr<http::Server> server_;  // last: stops before the rest goes
};

}  // namespace

std::filesystem::path orchestrator_address_file(const base::Home& home) {
  return home.state / "orchestrator.json";
}

int run_orchestrator(std::string_view program, const std::vector<std::string>& arguments,
                     const base::Environment& environment) {
  return api::run_daemon(
      program,
      parse_orchestrator_command(program, arguments, environment, base::own_folder(),
                                 ::isatty(STDERR_FILENO) != 0),
      environment, [&](const auto& options, const base::Home& home) {
        return OrchestratorProcess(program, options, home, environment).run();
      });
}

}  // namespace llorch::orchestrator
