#include "pool/pool_manager_fixture.h"

namespace llorch::pool {
namespace {

TEST_F(PoolManagerTest, ACallbackMustComeFromTheWorkerItself) {
  const std::string id = started("mute");
  contract::ReadyCallback callback;
  callback.worker_id = id;
  callback.uri = "http://203.0.113.7:1";
  const std::string mark = read_record(record_file(pool_.options.home, id)).take().mark;
  const auto code_for = [&](std::string_view given) {
    return pool_.manager().worker_ready(callback, given).error().code;
  };
  EXPECT_EQ(code_for(""), ErrorCode::Forbidden);
  EXPECT_EQ(code_for("0123456789abcdef0123456789abcdef"), ErrorCode::Forbidden);
  EXPECT_EQ(code_for(mark.substr(1)), ErrorCode::Forbidden);
  callback.worker_id = "worker-cpu-7";
  EXPECT_EQ(code_for(mark), ErrorCode::NotFound);
  EXPECT_EQ(pool_.worker(id).state, PoolWorkerState::Starting);
  EXPECT_EQ(pool_.worker(id).uri, "");

  callback.worker_id = id;
  EXPECT_TRUE(pool_.manager().worker_ready(callback, mark).ok());
  ASSERT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
  const std::string address = pool_.worker(id).uri;
  EXPECT_THAT(address, HasSubstr("http://127.0.0.1:")) << "what the callback says is not believed";
  EXPECT_EQ(code_for("forged"), ErrorCode::Forbidden);
  EXPECT_TRUE(pool_.manager().worker_ready(callback, mark).ok()) << "its answer may have been lost";
  EXPECT_EQ(pool_.worker(id).uri, address);
}

TEST_F(PoolManagerTest, TheSmallestFreeNumberIsUsed) {
  const std::string first = started("ok");
  const std::string second = started("ok");
  const std::string third = started("fail");
  EXPECT_EQ(third, "worker-cpu-2");
  failed(third);
  pool_.manager().stop_worker(first).take();
  ASSERT_TRUE(pool_.wait_for(first, PoolWorkerState::Stopped));
  EXPECT_EQ(started("ok"), "worker-cpu-0") << "stopped ones give their number away";
  EXPECT_EQ(started("ok"), "worker-cpu-3") << "failed ones keep it until they are forgotten";
  EXPECT_TRUE(std::filesystem::exists(pool_.options.home.logs() / "worker-cpu-0.log.1"))
      << "the log before";
}

TEST_F(PoolManagerTest, SpawnsAtOnceNeverCollide) {
  test::add_model(pool_.root(), "ok");
  std::vector<std::thread> threads;
  base::Mutex mutex;
  std::set<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 3; ++k) {
        const Result<PoolWorker> worker =
            pool_.manager().start_worker({.backend = "cpu", .model = "ok"});
        ASSERT_TRUE(worker.ok()) << worker.error().message;
        const base::MutexLock lock(mutex);
        ids.insert(worker->id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ids.size(), 12U);
  std::set<std::string> uris;
  for (const std::string& id : ids) {
    EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
    uris.insert(pool_.worker(id).uri);
  }
  EXPECT_EQ(uris.size(), 12U);
}

// Somebody listens on a port until the object goes.
class Squatter {
 public:
  explicit Squatter(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listens_ = ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
               ::listen(fd_, 1) == 0;
  }
  ~Squatter() { ::close(fd_); }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;
  bool listens() const { return listens_; }

 private:
  int fd_;
  bool listens_ = false;
};

TEST_F(PoolManagerTest, ATakenPortIsPassedOver) {
  const Squatter squatter(pool_.options.first_port);
  ASSERT_TRUE(squatter.listens());
  const std::string id = pool_.ready_worker("ok");
  const Result<WorkerRecord> record = read_record(record_file(pool_.options.home, id));
  ASSERT_TRUE(record.ok());
  EXPECT_GT(record->port, pool_.options.first_port);
}

TEST_F(PoolManagerTest, APortThatIsTakenInBetweenMeansTheNext) {
  const std::string id = started("ok,listen=300");
  const Result<WorkerRecord> before = read_record(record_file(pool_.options.home, id));
  ASSERT_TRUE(before.ok());
  const Squatter squatter(before->port);  // after the check, before the worker listens
  ASSERT_TRUE(squatter.listens());
  ASSERT_TRUE(pool_.wait_for(id, PoolWorkerState::Ready));
  const Result<WorkerRecord> after = read_record(record_file(pool_.options.home, id));
  ASSERT_TRUE(after.ok());
  EXPECT_GT(after->port, before->port);
  EXPECT_EQ(after->port_tries, 1);
  EXPECT_NE(after->mark, before->mark);
}

TEST_F(PoolManagerTest, RefusesWhatCannotRun) {
  const Result<PoolWorker> huge = pool_.start_worker("huge");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::OutOfMemory);
  EXPECT_THAT(huge.error().message,
              AllOf(HasSubstr("needs 100 GiB"), HasSubstr("8.00 GiB of 8.00 GiB are free"),
                    HasSubstr("fits with --ctx 512")));

  const auto absent = pool_.manager().start_worker({.backend = "cpu", .model = "absent"});
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);

  const auto no_gpu = [this] {
    test::add_model(pool_.root(), "ok");
    return pool_.manager().start_worker({.backend = "cuda", .model = "ok", .gpu = 3});
  }();
  ASSERT_FALSE(no_gpu.ok());
  EXPECT_EQ(no_gpu.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(no_gpu.error().message, HasSubstr("GPU 3 is not here"));

  EXPECT_THAT(pool_.manager().workers(), IsEmpty());
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(PoolManagerTest, RefusesAModelThatIsNotWholeOrNotForTheBackend) {
  contract::ModelEntry model;
  model.id = "m";
  pool_.options.sources->find_model = [&model](std::string_view) -> Result<contract::ModelEntry> {
    return model;
  };
  pool_.start();
  const auto refusal = [this] {
    const auto worker = pool_.manager().start_worker({.backend = "cpu", .model = "m"});
    return worker.ok() ? std::string("started") : worker.error().message;
  };
  EXPECT_THAT(refusal(), HasSubstr("llorch-pool models download m"));
  model.downloaded = true;
  model.path = (pool_.root() / "weights.gguf").string();
  EXPECT_THAT(refusal(), HasSubstr("is gone"));
  std::ofstream(model.path) << "12345";
  model.files = {{"weights.gguf", 6, ""}};
  model.backends = {"cpu"};
  EXPECT_THAT(refusal(), HasSubstr("has 5 bytes, expected 6"));
  model.files[0].size = 5;
  model.backends.clear();
  model.unsupported = "architecture \"rwkv\" is unknown";
  EXPECT_THAT(refusal(), HasSubstr("rwkv"));
  model.backends = {"cuda"};
  EXPECT_THAT(refusal(), HasSubstr("does not run on cpu, only on cuda"));
}

TEST_F(PoolManagerTest, MemoryIsPromisedOnce) {
  // Two that each need more than half: the second must not count on the same memory, however early
  // it comes.
  test::add_model(pool_.root(), "half,load=300");
  std::vector<Result<PoolWorker>> answers(2, Result<PoolWorker>(Error{}));
  std::vector<std::thread> threads;
  for (Result<PoolWorker>& answer : answers) {
    threads.emplace_back([&] {
      answer = pool_.manager().start_worker({.backend = "cpu", .model = "half,load=300"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(answers[0].ok(), answers[1].ok());
  const Result<PoolWorker>& refused = answers[0].ok() ? answers[1] : answers[0];
  EXPECT_EQ(refused.error().code, ErrorCode::OutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("running workers"));
}

TEST_F(PoolManagerTest, KeepsTheMeasuredPeak) {
  base::Mutex mutex;
  std::vector<std::int64_t> peaks;
  pool_.options.sources->keep_measurement = [&](const contract::ModelEntry& model,
                                                std::string_view backend,
                                                const contract::MemoryNeed&, std::int64_t peak) {
    EXPECT_EQ(model.id, "ok,alloc=64");
    EXPECT_EQ(backend, "cpu");
    const base::MutexLock lock(mutex);
    peaks.push_back(peak);
    return ok_status();
  };
  pool_.start();
  pool_.ready_worker("ok,alloc=64");
  ASSERT_TRUE(eventually([&] {
    const base::MutexLock lock(mutex);
    return !peaks.empty();
  }));
  const base::MutexLock lock(mutex);
  EXPECT_GT(peaks[0], 64 * kMiB);
  EXPECT_LT(peaks[0], 1024 * kMiB);
  EXPECT_EQ(peaks.size(), 1U);
}

}  // namespace
}  // namespace llorch::pool
