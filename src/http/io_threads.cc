#include "http/io_threads.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace llorch::http {

namespace asio = boost::asio;

namespace {

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

void log_failure(const std::exception_ptr& failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& exception) {
    logger().error("a coroutine failed", {{"what", exception.what()}});
  }
}

// What arrives here escaped a completion handler, which is gone with it. The others go on.
void run_io(asio::io_context& io) {
  while (!io.stopped()) {
    try {
      io.run();
    } catch (const std::exception& exception) {
      logger().error("an operation failed", {{"what", exception.what()}});
    }
  }
}

}  // namespace

struct IoThreads::State {
  explicit State(int num_threads)
      : io(std::make_unique<asio::io_context>(num_threads)), work(io->get_executor()) {}

  base::Mutex mutex;
  std::unique_ptr<asio::io_context> io LLORCH_GUARDED_BY(mutex);  // null: stopped
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work
      LLORCH_GUARDED_BY(mutex);
  std::vector<std::jthread> threads;  // of the one who makes and stops this
};

IoThreads::IoThreads(int num_threads) : state_(std::make_unique<State>(std::max(1, num_threads))) {
  const base::MutexLock lock(state_->mutex);
  asio::io_context* const io = state_->io.get();
  for (int i = 0; i < std::max(1, num_threads); ++i)
    state_->threads.push_back(base::start_thread("http-io", [io] { run_io(*io); }));
}

IoThreads::~IoThreads() {
  stop();
}

void IoThreads::spawn(std::function<Task<void>()> body) {
  const base::MutexLock lock(state_->mutex);
  if (!state_->io || !state_->work) return;
  asio::co_spawn(asio::make_strand(*state_->io), std::move(body), log_failure);
}

void IoThreads::stop() {
  asio::io_context* io = nullptr;
  {
    const base::MutexLock lock(state_->mutex);
    if (!state_->work) return;
    state_->work.reset();
    io = state_->io.get();
  }
  for (const std::jthread& thread : state_->threads)
    CHECK(thread.get_id() != std::this_thread::get_id(), "a coroutine stopped its own threads");
  io->stop();
  state_->threads.clear();
  std::unique_ptr<asio::io_context> last;
  {
    const base::MutexLock lock(state_->mutex);
    last = std::move(state_->io);
  }
  last.reset();  // destroys what still waits, without the lock: it may call spawn
}

}  // namespace llorch::http
