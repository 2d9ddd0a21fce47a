#include "pool/verify_fixture.h"

namespace llorch::pool {
namespace {

// Random damage to random files is always found, exactly, and mended.
TEST(Verify, RandomDamageIsFoundAndMended) {
  const std::uint64_t seed = std::random_device{}();
  std::cerr << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  const std::vector<std::int64_t> sizes = {0,          1,          kSmall - 1,      kSmall,
                                           kSmall + 1, 2 * kSmall, 3 * kSmall + 17, 10 * kSmall};
  for (int round = 0; round < 25; ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    Files files;
    const std::int64_t num_files = 1 + below(3);
    for (std::int64_t i = 0; i < num_files; ++i) {
      const std::int64_t size =
          sizes[static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())))];
      files.emplace_back(fmt::format("f{}", i),
                         random_bytes(static_cast<std::size_t>(size), random()));
    }
    Host host;
    Host neighbour;
    host.add_model("m", files, kSmall);
    neighbour.add_model("m", files);
    neighbour.serve();
    std::set<std::tuple<std::string, Damage::Kind, std::int64_t>> expected;
    for (const auto& [name, content] : files) {
      const auto size = static_cast<std::int64_t>(content.size());
      const std::filesystem::path path = host.folder("m") / name;
      const std::int64_t kind = below(6);
      if (kind == 0) {
        std::filesystem::remove(path);
        expected.emplace(name, Damage::Kind::Missing, 0);
      } else if (kind == 1 && size > 0) {
        std::filesystem::resize_file(path, static_cast<std::uintmax_t>(below(size)));
        expected.emplace(name, Damage::Kind::WrongSize, 0);
      } else if (kind == 2) {
        std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size + 1 + below(10'000)));
        expected.emplace(name, Damage::Kind::WrongSize, 0);
      } else if (kind <= 4 && size > 0) {
        std::set<std::int64_t> places;
        for (std::int64_t i = 0; i < 1 + below(4); ++i) places.insert(below(size));
        for (const std::int64_t place : places) {
          rot_byte(path, place);
          expected.emplace(name, Damage::Kind::Rotted, place / kSmall * kSmall);
        }
      }
    }
    const auto found_by = [](const VerifyReport& report) {
      std::set<std::tuple<std::string, Damage::Kind, std::int64_t>> found;
      for (const Damage& damage : report.damages)
        found.emplace(damage.file, damage.kind, damage.offset);
      return found;
    };
    EXPECT_EQ(found_by(check(host, "m")), expected);
    const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
    EXPECT_EQ(found_by(mended), expected);
    EXPECT_TRUE(mended.is_whole()) << json::serialize(to_json(mended));
    for (const auto& [name, content] : files)
      EXPECT_TRUE(test::read_file(host.folder("m") / name) == content) << name;
    EXPECT_TRUE(check(host, "m").damages.empty());
    if (::testing::Test::HasFailure()) return;
  }
}

// The program as a user runs it.

std::vector<std::string> environment_of(const Host& host) {
  return {"LLORCH_HOME=" + host.root().string(), "NO_COLOR=1"};
}

TEST(VerifyCommand, FindsRepairsAndSaysSo) {
  const Files files = {{"a", random_bytes(30'000, 12)}};
  Host host;
  Host neighbour;
  host.add_model("m", files);
  host.add_model("good", {{"x", "y"}});
  neighbour.add_model("m", files);
  neighbour.serve("a-token-of-some-length");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "LLORCH_TOKEN=a-token-of-some-length");
    arguments.insert(arguments.begin(), "LLORCH_HOME=" + host.root().string());
    arguments.insert(arguments.begin() + 2, LLORCH_POOL);
    return llorch::test::run_program("/usr/bin/env", arguments);
  };
  const auto whole = run({"models", "verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("good"));
  EXPECT_THAT(whole.out, HasSubstr("whole"));

  rot_byte(host.folder("m") / "a", 100);
  const auto found = run({"models", "verify"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.out, HasSubstr("1 damaged"));
  EXPECT_THAT(found.err, HasSubstr("--repair"));
  const auto as_json = run({"models", "verify", "m", "--json"});
  EXPECT_EQ(as_json.exit_code, 1);
  const std::string last = as_json.out.substr(as_json.out.rfind('\n', as_json.out.size() - 2) + 1);
  const Result<json::Value> parsed = json::parse(last);
  ASSERT_TRUE(parsed.ok()) << as_json.out;
  EXPECT_FALSE(parsed->at("models").at(0).at("whole").as_bool());
  EXPECT_EQ(json::view(parsed->at("models").at(0).at("damages").at(0).at("kind").as_string()),
            "rotted");

  const auto repaired = run({"models", "verify", "m", "--repair", "--from", neighbour.url()});
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("1 repaired"));
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);
  EXPECT_EQ(run({"models", "verify", "--from", "a b"}).exit_code, 2);
  EXPECT_EQ(run({"models", "verify", "nobody"}).exit_code, 1);
}

// Blocks the answer to every request for a file behind the first ones, until it is opened.
class Gate {
 public:
  void pass_or_wait(int number, int free) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const base::MutexLock lock(mutex_);
    if (number > free) reached_ = true;
    changed_.notify_all();
    while (number > free && !open_ && changed_.wait_until(mutex_, deadline)) {
    }
  }
  bool wait_reached() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const base::MutexLock lock(mutex_);
    while (!reached_ && changed_.wait_until(mutex_, deadline)) {
    }
    return reached_;
  }
  void open() {
    const base::MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool reached_ LLORCH_GUARDED_BY(mutex_) = false;
  bool open_ LLORCH_GUARDED_BY(mutex_) = false;
};

TEST(VerifyCommand, AKillDuringRepairLeavesAFileThatCanBeRepaired) {
  const std::int64_t size = 10 * kSmall;
  const Files files = {{"a", random_bytes(static_cast<std::size_t>(size), 13)}};
  Host host;
  Host neighbour;
  host.add_model("m", files, kSmall);
  neighbour.add_model("m", files);
  neighbour.serve();
  for (std::int64_t at = 0; at < size; at += kSmall) rot_byte(host.folder("m") / "a", at + 7);
  Gate gate;
  std::atomic<int> number = 0;
  const auto serve = ranges_of(files[0].second, [](std::string&) {});
  const std::string manifest = test::fetch_text(neighbour.url() + "/v2/models/m/manifest");
  const FakeNeighbour slow(
      manifest,
      [&](const http::Request& request, http::Responder& responder) -> http::Task<Status> {
        gate.pass_or_wait(++number, 4);  // a test's server may block
        co_return co_await serve(request, responder);
      });
  {
    llorch::test::ChildProcess child(LLORCH_POOL,
                                     {"models", "verify", "m", "--repair", "--from", slow.url()},
                                     environment_of(host));
    ASSERT_TRUE(gate.wait_reached());
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -1);
  }
  gate.open();
  const VerifyReport after = check(host, "m");
  EXPECT_EQ(after.damages.size(), 6U) << "four were mended and stay so";
  EXPECT_TRUE(verify(host, "m", {neighbour.neighbour()}).is_whole());
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);
}

}  // namespace
}  // namespace llorch::pool
