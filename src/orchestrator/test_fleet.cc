#include "orchestrator/test_fleet.h"

#include <fmt/format.h>

#include <future>
#include <thread>

#include "api/answers.h"
#include "base/check.h"
#include "job_store/sqlite_store.h"
#include "orchestrator/routes.h"

namespace llorch::orchestrator::test {
namespace {

template <class T>
T taken(Result<T> result) {
  CHECK(result.ok(), result.ok() ? "" : result.error().message);
  return result.take();
}

}  // namespace

TestFleet::TestFleet(TestFleetOptions options) : options_(std::move(options)) {
  std::filesystem::create_directories(options_.folder);
  show_workers(options_.workers);
  job_store::SqliteOptions file;
  file.file = options_.folder / "jobs.db";
  store_ = taken(job_store::open_sqlite_store(
      file, [this](job_store::Written written) { core_->note_written(std::move(written)); }));
  core_ = std::make_unique<Orchestrator>(fleet::FleetLimits{}, taken(store_->begin_boot()));
  const PostEvent post = [this](fleet::Event event) { core_->post(std::move(event)); };
  keys = taken(KeyRing::open(*store_, post));
  io = std::make_unique<http::IoThreads>(options_.io_threads);
  PoolsOptions pool_options;
  pool_options.start_local = [this]() -> Result<PoolAddress> {
    if (!options_.pool_url.empty()) return PoolAddress{options_.pool_url, ""};
    return pool.address();
  };
  pool_options.poll_pause = std::chrono::milliseconds(50);
  pools = std::make_unique<Pools>(*core_, *io, threads, std::move(pool_options));
  BookLimits limits;
  limits.keep_alive = options_.keep_alive;
  answers = std::make_unique<AnswerBook>(*store_, threads, post, limits);
  relays = std::make_unique<Relays>(*io, threads, *answers, post);
  core_->start({.store = store_.get(),
                .attempts = relays.get(),
                .answers = answers.get(),
                .pools = pools.get(),
                .io = io.get(),
                .threads = &threads});
  http::ServerOptions server;
  server.render_error = api::render_error;
  server.max_connections = 8192;
  server.io_threads = options_.io_threads;
  server_ = taken(http::Server::start(make_router({.core = *core_,
                                                   .answers = *answers,
                                                   .relays = *relays,
                                                   .pools = *pools,
                                                   .keys = *keys,
                                                   .store = *store_,
                                                   .threads = threads,
                                                   .request_shutdown = [] {},
                                                   .is_draining = [] { return false; }}),
                                      server));
  relays->run_beside(
      [this](std::function<http::Task<void>()> body) { return server_->spawn(std::move(body)); });
  core_->recover({.hosts = {{std::string(kLocalHost), fleet::HostKind::Local}}});
}

TestFleet::~TestFleet() {
  server_->stop();
  io->stop();
  core_->stop();
  store_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(options_.folder, ignored);
}

std::string TestFleet::url(std::string_view path) const {
  return fmt::format("http://127.0.0.1:{}{}", server_->port(), path);
}

void TestFleet::show_workers(std::uint32_t workers) {
  pool.set_state(scripted_state(workers, options_.slots));
}

void TestFleet::wait_until_ready() {
  while (true) {
    std::promise<bool> answer;
    const bool asked = core_->ask([&answer](const fleet::Fleet& fleet, fleet::TimePoint) {
      bool is_ready = false;
      for (const fleet::Model& model : fleet.models) is_ready |= model.free_slots > 0;
      answer.set_value(is_ready);
    });
    if (asked && answer.get_future().get() && core_->is_ready()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace llorch::orchestrator::test
