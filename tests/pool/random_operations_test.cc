// The pool as a program under a storm: spawns, stops, kills, cut downloads, rotted files and a full
// disk in random order. After every operation the promises of the pool must hold.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "fetch/chunks.h"
#include "http/client.h"
#include "pool/pool_world.h"

namespace llorch::test {
namespace {

namespace fs = std::filesystem;
using contract::PoolWorker;
using contract::PoolWorkerState;
using ::testing::AnyOf, ::testing::HasSubstr;

constexpr int kOperations = 200;
constexpr std::size_t kWorkersMax = 3;

// What was acknowledged, and what we did to the world behind the pool's back.
struct Expected {
  std::set<std::string> registered;  // in place: their files are ours
  std::set<std::string> downloaded;
  std::set<std::string> cut;  // their command was killed: the manager may have gone on
  std::map<std::string, std::set<std::int64_t>> rotted;  // where we flipped bytes of theirs
};

class Storm {
 public:
  explicit Storm(std::uint32_t seed) : random_(seed) {}

  // Does one random operation; says which.
  std::string step() {
    struct Choice {
      const char* name;
      int weight;
      void (Storm::*run)();
    };
    static constexpr Choice kChoices[] = {
        {"spawn", 5, &Storm::spawn},
        {"stop", 4, &Storm::stop},
        {"kill worker", 3, &Storm::kill_worker},
        {"kill keeper", 2, &Storm::kill_keeper},
        {"kill manager", 3, &Storm::kill_manager},
        {"register", 4, &Storm::register_model},
        {"unregister", 2, &Storm::unregister_model},
        {"download", 3, &Storm::download},
        {"cut download", 3, &Storm::cut_download},
        {"remove", 2, &Storm::remove},
        {"rot", 3, &Storm::rot},
        {"verify", 2, &Storm::verify},
        {"full disk", 2, &Storm::full_disk},
        {"what cannot be", 4, &Storm::ask_what_cannot_be},
    };
    int total = 0;
    for (const Choice& choice : kChoices) total += choice.weight;
    int drawn = draw(total);
    for (const Choice& choice : kChoices) {
      drawn -= choice.weight;
      if (drawn >= 0) continue;
      (this->*choice.run)();
      return choice.name;
    }
    return "nothing";
  }

  void check(const std::string& after) {
    SCOPED_TRACE(after);
    check_catalog();
    check_workers();
  }

  // Everything mended, everything stopped, nothing left.
  void finish() {
    for (const auto& [id, places] : expected_.rotted) {
      const ProgramOutcome mended = world_.cli({"models", "verify", id, "--repair"});
      EXPECT_EQ(mended.exit_code, 0) << id << ": " << mended.out << mended.err;
    }
    expected_.rotted.clear();
    check("the end");
    const ProgramOutcome stopped = world_.cli({"stop"});
    EXPECT_EQ(stopped.exit_code, 0) << stopped.out << stopped.err;
    EXPECT_TRUE(eventually([&] { return world_.processes().empty(); }))
        << fmt::format("{} processes are left", world_.processes().size());
  }

 private:
  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint32_t>(below)); }
  template <class Set>
  std::optional<std::string> draw_from(const Set& set) {
    if (set.empty()) return std::nullopt;
    return *std::next(set.begin(), draw(static_cast<int>(set.size())));
  }

  std::vector<PoolWorker> workers() { return world_.workers(); }
  std::optional<PoolWorker> draw_worker() {
    const std::vector<PoolWorker> all = workers();
    std::vector<PoolWorker> running;
    for (const PoolWorker& worker : all) {
      if (PoolWorld::runs(worker)) running.push_back(worker);
    }
    if (running.empty()) return std::nullopt;
    return running[static_cast<std::size_t>(draw(static_cast<int>(running.size())))];
  }

  bool is_full_of_workers() {
    std::size_t running = 0;
    for (const PoolWorker& worker : workers()) running += PoolWorld::runs(worker) ? 1U : 0U;
    return running >= kWorkersMax;
  }

  // A rotted model is refused in the right words, and known to be damaged from then on.
  void check_refused(const std::string& model, const ProgramOutcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 1) << model << " is rotted, and was started: " << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("is damaged"));
    EXPECT_THAT(outcome.err, HasSubstr(fmt::format("models verify {} --repair", model)));
    EXPECT_EQ(state_of(model), "damaged");
  }

  std::string state_of(const std::string& id) {
    const ProgramOutcome outcome = world_.cli({"models", "list", "--json"});
    const Result<json::Value> value = json::parse(outcome.out);
    if (!value.ok()) return "no JSON: " + outcome.out + outcome.err;
    for (const json::Value& model : value->as_object().at("models").as_array()) {
      if (json::view(model.as_object().at("id").as_string()) == id)
        return std::string(json::view(model.as_object().at("state").as_string()));
    }
    return "absent";
  }

  void spawn() {
    if (is_full_of_workers()) return stop();
    // Mostly a model that works, sometimes one that cannot.
    std::string model = "builtin";
    if (draw(4) == 0) model = draw_from(expected_.downloaded).value_or("nobody-has-this");
    std::vector<std::string> arguments = {"worker", "spawn", "cpu",     "--model", model,
                                          "--ctx",  "128",   "--slots", "2"};
    if (draw(3) == 0) arguments.emplace_back("--no-wait");
    const ProgramOutcome outcome = world_.cli(arguments);
    if (expected_.rotted.contains(model)) {
      check_refused(model, outcome);
    } else if (model == "nobody-has-this") {
      EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
      EXPECT_THAT(outcome.err, HasSubstr("no model is called \"nobody-has-this\""));
    } else {
      EXPECT_EQ(outcome.exit_code, 0) << model << ": " << outcome.out << outcome.err;
    }
  }

  // Each failure that must come has its words, and leaves everything as it was.
  void ask_what_cannot_be() {
    const fs::path pipe = world_.home() / "pipe.gguf";
    if (!fs::exists(pipe)) {
      ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    }
    const std::string text = source_path("models/builtin/README.md").string();
    struct Case {
      std::vector<std::string> arguments;
      std::string expected;
      std::string or_else = expected;
    };
    const std::vector<Case> cases = {
        {{"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "1"}, "16"},
        {{"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "99999"},
         "the model's own context of 1024"},
        {{"worker", "spawn", "cuda", "--model", "builtin", "--gpu", "77"}, "GPU 77 is not here"},
        // Stopping starts no manager: after a kill nobody can say what worker that would be.
        {{"worker", "stop", "worker-cpu-200"}, "worker-cpu-200", "no pool manager is running"},
        {{"models", "register", "bad", "--path", pipe.string()}, "is a pipe"},
        {{"models", "register", "bad", "--path", text}, "is none of the formats"},
        {{"models", "register", "bad", "--path", "/nowhere/at/all"}, "No such file"},
        {{"models", "verify", "nobody-has-this"}, "no model is called"},
        {{"models", "unregister", "builtin"}, "is part of the program"},
        {{"models", "download", "nobody-has-this"}, "nobody-has-this"},
    };
    const Case& one = cases[static_cast<std::size_t>(draw(static_cast<int>(cases.size())))];
    const ProgramOutcome outcome = world_.cli(one.arguments);
    // 2 where the command line itself named what cannot be.
    EXPECT_THAT(outcome.exit_code, AnyOf(1, 2))
        << one.expected << ": " << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, AnyOf(HasSubstr(one.expected), HasSubstr(one.or_else)));
  }

  void stop() {
    const std::optional<PoolWorker> worker = draw_worker();
    if (!worker) return;
    const ProgramOutcome outcome = world_.cli({"worker", "stop", worker->id});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_FALSE(world_.is_alive(worker->pid)) << worker->id << " was said to be stopped";
  }

  void kill_worker() {
    const std::optional<PoolWorker> worker = draw_worker();
    if (!worker || worker->pid <= 0) return;
    ::kill(static_cast<pid_t>(worker->pid), SIGKILL);
    EXPECT_TRUE(eventually([&] {
      for (const PoolWorker& now : workers()) {
        if (now.id == worker->id)
          return now.pid != worker->pid || now.state == PoolWorkerState::Failed;
      }
      return true;
    })) << worker->id
        << " was killed and is still said to run";
  }

  void kill_keeper() {
    const std::vector<Process> all = world_.processes();
    for (const Process& process : all) {
      if (process.role != Role::Keeper) continue;
      ::kill(process.pid, SIGKILL);
      // Its worker goes with it.
      EXPECT_TRUE(eventually([&] {
        for (const Process& other : world_.processes()) {
          if (other.role == Role::Worker && other.parent == process.pid) return false;
        }
        return true;
      }));
      return;
    }
  }

  void kill_manager() {
    for (const Process& process : world_.processes()) {
      if (process.role == Role::Manager) ::kill(process.pid, SIGKILL);
    }
  }

  void register_model() {
    const std::string id = fmt::format("here-{}", draw(6));
    const ProgramOutcome outcome = world_.cli(
        {"models", "register", id, "--name", id, "--path", world_.model_file().string()});
    const bool is_new = !expected_.registered.contains(id);
    EXPECT_EQ(outcome.exit_code, is_new ? 0 : 1) << id << ": " << outcome.out << outcome.err;
    expected_.registered.insert(id);
  }

  void unregister_model() {
    const std::optional<std::string> id = draw_from(expected_.registered);
    if (!id) return;
    const ProgramOutcome outcome = world_.cli({"models", "unregister", *id});
    if (outcome.exit_code == 0) expected_.registered.erase(*id);
    EXPECT_TRUE(fs::exists(world_.model_file()))
        << "files of the user's are not the pool's to remove";
  }

  std::string remote_id() { return fmt::format("far-{}", draw(3)); }

  void download() {
    const std::string id = remote_id();
    const ProgramOutcome outcome =
        world_.cli({"models", "download", id, "--ref", world_.remote_ref()});
    EXPECT_EQ(outcome.exit_code, 0) << id << ": " << outcome.out << outcome.err;
    if (outcome.exit_code != 0) return;
    expected_.downloaded.insert(id);
    expected_.rotted.erase(id);  // a file that changed is looked at again
  }

  void cut_download() {
    const std::string id = remote_id();
    if (expected_.downloaded.contains(id)) return remove();
    const std::unique_ptr<ChildProcess> child =
        world_.start({"models", "download", id, "--ref", world_.remote_ref()});
    std::this_thread::sleep_for(std::chrono::milliseconds(draw(150)));
    child->signal(SIGKILL);
    const std::optional<int> exit_code = child->wait();
    if (exit_code == 0)
      expected_.downloaded.insert(id);  // it was quicker
    else
      expected_.cut.insert(id);
  }

  void remove() {
    const std::optional<std::string> id = draw_from(expected_.downloaded);
    if (!id) return;
    bool in_use = false;
    for (const PoolWorker& worker : workers())
      in_use |= worker.model == *id && PoolWorld::runs(worker);
    const ProgramOutcome outcome = world_.cli({"models", "rm", *id});
    EXPECT_EQ(outcome.exit_code, in_use ? 1 : 0) << outcome.out << outcome.err;
    if (outcome.exit_code != 0) return;
    expected_.downloaded.erase(*id);
    expected_.rotted.erase(*id);
  }

  void rot() {
    const std::optional<std::string> id = draw_from(expected_.downloaded);
    if (!id) return;
    const auto place = world_.flip_a_byte(*id, static_cast<std::uint32_t>(random_()));
    if (!place) return;
    std::set<std::int64_t>& places = expected_.rotted[*id];
    if (!places.insert(*place).second) places.erase(*place);  // the same byte again: right again
    if (places.empty()) expected_.rotted.erase(*id);
  }

  // Where the report says that chunks are rotted.
  static std::set<std::int64_t> damages_in(const std::string& output) {
    std::string_view text = output;
    while (text.ends_with('\n')) text.remove_suffix(1);
    const Result<json::Value> value = json::parse(text.substr(text.rfind('\n') + 1));
    EXPECT_TRUE(value.ok()) << output;
    std::set<std::int64_t> offsets;
    if (!value.ok()) return offsets;
    const json::Value& report = value->as_object().at("models").as_array().at(0);
    for (const json::Value& damage : report.as_object().at("damages").as_array()) {
      EXPECT_EQ(damage.as_object().at("kind"), "rotted") << output;
      offsets.insert(damage.as_object().at("offset").as_int64());
    }
    return offsets;
  }

  void verify() {
    const std::optional<std::string> id = draw_from(expected_.downloaded);
    if (!id) return;
    std::set<std::int64_t> expected;  // exactly the chunks that we touched
    if (const auto found = expected_.rotted.find(*id); found != expected_.rotted.end()) {
      for (const std::int64_t place : found->second)
        expected.insert(place / fetch::kChunkBytes * fetch::kChunkBytes);
    }
    const ProgramOutcome found = world_.cli({"models", "verify", *id, "--json"});
    EXPECT_EQ(found.exit_code, expected.empty() ? 0 : 1) << *id << ": " << found.out << found.err;
    EXPECT_EQ(damages_in(found.out), expected) << *id;
    EXPECT_EQ(state_of(*id), expected.empty() ? "ready" : "damaged");
    const ProgramOutcome mended = world_.cli({"models", "verify", *id, "--repair"});
    EXPECT_EQ(mended.exit_code, 0) << *id << ": " << mended.out << mended.err;
    EXPECT_EQ(state_of(*id), "ready");
    expected_.rotted.erase(*id);
    if (expected.empty() || is_full_of_workers()) return;
    const ProgramOutcome started =
        world_.cli({"worker", "spawn", "cpu", "--model", *id, "--ctx", "128", "--slots", "2"});
    EXPECT_EQ(started.exit_code, 0) << *id << " was mended: " << started.out << started.err;
  }

  // Nothing can be written: what is asked for fails with a reason or works, and nothing is lost.
  void full_disk() {
    const FullDisk full(world_);
    if (!full.is_full()) return;
    const ProgramOutcome outcome = world_.cli(
        {"models", "register", "no-room", "--name", "x", "--path", world_.model_file().string()});
    if (outcome.exit_code == 0) {
      expected_.registered.insert("no-room");
    } else {
      EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
    }
    const std::string id = remote_id();
    if (expected_.downloaded.contains(id)) return;
    const ProgramOutcome fetched =
        world_.cli({"models", "download", id, "--ref", world_.remote_ref()});
    if (fetched.exit_code == 0) {
      expected_.downloaded.insert(id);
    } else {
      EXPECT_THAT(fetched.err, AnyOf(HasSubstr("free and"), HasSubstr("No space left on device")));
    }
  }

  // Nothing acknowledged is lost, nothing is there that was not, and what is called downloaded is
  // what was sent.
  void check_catalog() {
    std::set<std::string> ids;
    for (const contract::ModelEntry& model : world_.models()) {
      ids.insert(model.id);
      if (model.id == "builtin") continue;
      EXPECT_TRUE(expected_.registered.contains(model.id) ||
                  expected_.downloaded.contains(model.id) || expected_.cut.contains(model.id) ||
                  !model.downloaded)
          << model.id << " came from nowhere";
      if (!expected_.downloaded.contains(model.id) || expected_.rotted.contains(model.id)) continue;
      EXPECT_TRUE(model.downloaded) << model.id;
      EXPECT_TRUE(world_.is_intact(model)) << model.id;
    }
    for (const std::string& id : expected_.registered)
      EXPECT_TRUE(ids.contains(id)) << id << " is lost";
    for (const std::string& id : expected_.downloaded)
      EXPECT_TRUE(ids.contains(id)) << id << " is lost";
  }

  // Every process is known, every worker that is said to run does, and no two share anything.
  void check_workers() {
    std::set<std::string> ids;
    std::set<std::string> addresses;
    for (const PoolWorker& worker : workers()) {
      EXPECT_TRUE(ids.insert(worker.id).second) << "two workers are called " << worker.id;
      if (!PoolWorld::runs(worker) || worker.uri.empty()) continue;
      EXPECT_TRUE(addresses.insert(worker.uri).second) << "two workers at " << worker.uri;
    }
    EXPECT_TRUE(eventually([&] { return world_.strays().empty(); })) << [&] {
      std::string text = "processes that no worker accounts for:";
      for (const Process& process : world_.strays())
        text += fmt::format(" {} ({})", process.pid, process.command);
      return text;
    }();
  }

  PoolWorld world_;
  std::mt19937 random_;
  Expected expected_;
};

TEST(Pool, KeepsItsPromisesThroughRandomOperations) {
  const char* given = std::getenv("LLORCH_TEST_SEED");
  const std::uint32_t seed = given != nullptr
                                 ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10))
                                 : std::random_device()();
  fmt::print("seed {} (LLORCH_TEST_SEED={} repeats it)\n", seed, seed);
  Storm storm(seed);
  std::string history;
  for (int i = 0; i < kOperations && !testing::Test::HasFailure(); ++i) {
    const std::string name = storm.step();
    history += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, name);
    storm.check(fmt::format("after operation {}: {}", i, name));
  }
  storm.finish();
  if (testing::Test::HasFailure()) fmt::print("operations: {}\n", history);
}

}  // namespace
}  // namespace llorch::test
