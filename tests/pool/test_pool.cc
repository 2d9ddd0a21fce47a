// For tests: `keep RECORD` is the keeper; `manage ROOT MODEL…` is a manager that starts these
// models, says "started" and "ready" on stderr, and waits to be killed.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/log.h"
#include "pool/pool_fixture.h"
#include "pool/pool_manager.h"

namespace llorch::test {
namespace {

int manage(const std::string& root, const std::vector<std::string>& models) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Off});
  CallbackServer callback;
  Result<std::unique_ptr<pool::PoolManager>> manager =
      pool::PoolManager::start(make_pool_options(root, callback.url()));
  if (!manager.ok()) {
    std::fprintf(stderr, "%s\n", manager.error().message.c_str());
    return 1;
  }
  callback.attach(manager->get());
  std::vector<std::string> ids;
  for (const std::string& model : models) {
    add_model(root, model);
    const Result<contract::PoolWorker> worker =
        (*manager)->start_worker({.backend = "cpu", .model = model});
    if (!worker.ok()) {
      std::fprintf(stderr, "%s\n", worker.error().message.c_str());
      return 1;
    }
    ids.push_back(worker->id);
  }
  std::fputs("started\n", stderr);
  for (const std::string& id : ids) {
    eventually([&] {
      const Result<contract::PoolWorker> worker = (*manager)->worker(id);
      return worker.ok() && worker->state != contract::PoolWorkerState::Starting;
    });
  }
  std::fputs("ready\n", stderr);
  for (;;) ::pause();
}

}  // namespace
}  // namespace llorch::test

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "keep") return llorch::pool::run_keeper(words[1]);
  if (words.size() >= 2 && words[0] == "manage")
    return llorch::test::manage(words[1], {words.begin() + 2, words.end()});
  std::fputs("usage: llorch-test-pool keep RECORD | manage ROOT MODEL...\n", stderr);
  return 2;
}
