// What the orchestrator's relay adds to a worker's stream, with a scripted worker in a process of
// its own (so the numbers are the relay's, not a model's): first token, throughput of 64 streams,
// memory with 2,000, the gap of a move, a cancel. With nginx in the PATH also that of a bare proxy.
//
//   relay_bench FOLDER            all of it; FOLDER is for the store
//   relay_bench pool              (its own children)
//   relay_bench fleet FOLDER URL
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/own_program.h"
#include "http/client.h"
#include "http/feed.h"
#include "http/io_threads.h"
#include "orchestrator/test_fleet.h"
#include "orchestrator/test_pool.h"

namespace {

using namespace llorch;
using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kWorkers = 64;  // so many that a breaker is no matter
constexpr std::int32_t kSlots = 64;

double ms_between(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

// --- children ---

// Serves until its parent closes our standard input.
int serve(const std::string& port) {
  fmt::print("{}\n", port);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

int run_pool() {
  orchestrator::test::TestPool pool(1);
  pool.set_state(orchestrator::test::scripted_state(kWorkers, kSlots));
  return serve(pool.address().url);
}

int run_fleet(const std::string& folder, const std::string& pool) {
  orchestrator::test::TestFleetOptions options;
  options.folder = folder;
  options.pool_url = pool;
  options.workers = 0;
  orchestrator::test::TestFleet fleet(options);
  fleet.wait_until_ready();
  return serve(fleet.url(""));
}

// A child of ours that prints one line and serves until its input ends.
class Child {
 public:
  explicit Child(std::vector<std::string> argv) {
    int in[2];
    int out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      std::vector<char*> words;
      for (std::string& word : argv) words.push_back(word.data());
      words.push_back(nullptr);
      ::execvp(words[0], words.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    std::FILE* lines = ::fdopen(out[0], "r");
    char line[512] = {};
    if (std::fgets(line, sizeof(line), lines) != nullptr) line_ = line;
    while (!line_.empty() && line_.back() == '\n') line_.pop_back();
    std::fclose(lines);
  }
  ~Child() {
    ::close(in_);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& line() const { return line_; }
  double resident_mb() const {
    std::ifstream file(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
    }
    return 0;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  std::string line_;
};

// nginx as a bare proxy in front of the pool, where it is installed.
class Nginx {
 public:
  Nginx(const std::string& folder, const std::string& pool) : folder_(folder + "/nginx") {
    if (std::system("command -v nginx > /dev/null 2>&1") != 0) return;
    std::filesystem::create_directories(folder_);
    const int port = 20'000 + ::getpid() % 20'000;
    std::ofstream(folder_ + "/nginx.conf") << fmt::format(
        "daemon on; pid {0}/pid; error_log {0}/error.log; worker_processes 2;\n"
        "events {{ worker_connections 8192; }}\n"
        "http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n"
        "fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n"
        "server {{ listen 127.0.0.1:{1}; location / {{ proxy_pass {2}; proxy_buffering off;\n"
        "proxy_http_version 1.1; proxy_set_header Host {3}; proxy_set_header Connection "
        "\"\"; }} }} }}\n",
        folder_, port, pool, pool.substr(pool.find("//") + 2));
    const std::string start =
        fmt::format("nginx -e {0}/error.log -p {0} -c {0}/nginx.conf > /dev/null 2>&1", folder_);
    if (std::system(start.c_str()) == 0) url_ = fmt::format("http://127.0.0.1:{}", port);
  }
  ~Nginx() {
    if (url_.empty()) return;
    const std::string stop = fmt::format(
        "nginx -e {0}/error.log -p {0} -c {0}/nginx.conf -s stop > /dev/null 2>&1", folder_);
    [[maybe_unused]] const int rc = std::system(stop.c_str());
  }
  const std::string& url() const { return url_; }

 private:
  const std::string folder_;
  std::string url_;
};

// --- streams ---

constexpr std::string_view kDirect = "/v2/workers/w0/api/v1/chat/completions";
constexpr std::string_view kThrough = "/v1/chat/completions";

http::ClientRequest chat(const std::string& url, const std::string& script) {
  http::ClientRequest request(http::Method::Post, url);
  request.body = fmt::format(
      R"({{"model":"story","stream":true,"seed":7,"messages":[{{"role":"user","content":"hi"}}],"user":"script {}"}})",
      script);
  request.headers.add("X-Llorch-Ids", "1");
  request.total_timeout = milliseconds(0);
  return request;
}

struct StreamTimes {
  bool is_whole = false;
  double first_ms = 0;  // to the first token
  double gap_ms = 0;    // the longest silence after it
  std::uint64_t tokens = 0;
};

http::Task<StreamTimes> read_stream(http::Client& client, http::ClientRequest request) {
  StreamTimes times;
  const SteadyClock::time_point start = SteadyClock::now();
  SteadyClock::time_point last = start;
  Result<http::ResponseStream> stream = co_await client.async_open(std::move(request));
  if (!stream.ok() || stream->status() != 200) co_return times;
  while (true) {
    const Result<std::string> piece = co_await stream->read_some();
    if (!piece.ok()) co_return times;
    if (piece->empty()) break;
    std::uint64_t tokens = 0;
    for (std::size_t at = piece->find("\"ids\":["); at != std::string::npos;
         at = piece->find("\"ids\":[", at + 1))
      ++tokens;
    const SteadyClock::time_point now = SteadyClock::now();
    if (tokens > 0 && times.tokens == 0) times.first_ms = ms_between(start, now);
    if (tokens > 0 && times.tokens > 0)
      times.gap_ms = std::max(times.gap_ms, ms_between(last, now));
    if (tokens > 0) last = now;
    times.tokens += tokens;
    times.is_whole |= piece->find("[DONE]") != std::string::npos;
  }
  co_return times;
}

StreamTimes read_one(http::IoThreads& io, http::Client& client, const std::string& url,
                     const std::string& script) {
  std::promise<StreamTimes> done;
  io.spawn([&]() -> http::Task<void> {
    done.set_value(co_await read_stream(client, chat(url, script)));
  });
  return done.get_future().get();
}

struct Load {
  double tokens_per_second = 0;
  std::uint64_t broken = 0;
  double mid_resident_mb = 0;
};

// A look at the fleet while streams run.
struct Look {
  milliseconds after{0};
  std::function<double()> resident_mb;  // null: none is wanted
};

// So many streams at once, to their ends.
Load read_many(http::IoThreads& io, http::Client& client, const std::string& url,
               const std::string& script, std::size_t streams, const Look& look = {}) {
  std::atomic<std::uint64_t> tokens{0};
  std::atomic<std::uint64_t> broken{0};
  std::atomic<std::size_t> left{streams};
  std::promise<void> done;
  const SteadyClock::time_point start = SteadyClock::now();
  for (std::size_t i = 0; i < streams; ++i) {
    io.spawn([&]() -> http::Task<void> {
      const StreamTimes times = co_await read_stream(client, chat(url, script));
      tokens += times.tokens;
      if (!times.is_whole) ++broken;
      if (--left == 0) done.set_value();
    });
  }
  Load load;
  if (look.resident_mb) {
    std::this_thread::sleep_for(look.after);
    load.mid_resident_mb = look.resident_mb();
  }
  done.get_future().get();
  load.tokens_per_second =
      static_cast<double>(tokens) / ms_between(start, SteadyClock::now()) * 1e3;
  load.broken = broken;
  return load;
}

// --- what is measured ---

struct Place {
  std::string name;
  std::string url;
};

// One request to each place.
void take_turns(http::IoThreads& io, http::Client& client, const std::vector<Place>& places,
                int turns, std::vector<std::vector<double>>& times) {
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const StreamTimes one = read_one(io, client, places[i].url, "tokens=2");
      if (one.is_whole) times[i].push_back(one.first_ms);
    }
  }
}

// In blocks: whatever else the machine does falls on some of them, on one place or another. What is
// added is the median of what each block says.
void measure_first_token(http::IoThreads& io, http::Client& client,
                         const std::vector<Place>& places) {
  constexpr int kBlocks = 15;
  constexpr int kTurns = 200;
  std::vector<std::vector<double>> all(places.size());
  take_turns(io, client, places, kTurns, all);  // warm
  all.assign(places.size(), {});
  std::vector<std::vector<double>> added50(places.size());
  std::vector<std::vector<double>> added99(places.size());
  for (int block = 0; block < kBlocks; ++block) {
    std::vector<std::vector<double>> times(places.size());
    take_turns(io, client, places, kTurns, times);
    for (std::size_t i = 0; i < places.size(); ++i) {
      added50[i].push_back(percentile(times[i], 0.5) - percentile(times[0], 0.5));
      added99[i].push_back(percentile(times[i], 0.99) - percentile(times[0], 0.99));
      all[i].insert(all[i].end(), times[i].begin(), times[i].end());
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    fmt::print(
        "first token   {:14} p50 {:7.3f} ms  p99 {:7.3f} ms  added p50 {:+.3f} p99 {:+.3f} "
        "({:+.3f} to {:+.3f} in {} blocks of {})\n",
        places[i].name, percentile(all[i], 0.5), percentile(all[i], 0.99),
        percentile(added50[i], 0.5), percentile(added99[i], 0.5), percentile(added99[i], 0),
        percentile(added99[i], 1), kBlocks, kTurns);
  }
}

void measure_throughput(http::IoThreads& io, http::Client& client,
                        const std::vector<Place>& places) {
  double alone = 0;
  for (const Place& place : places) {
    std::vector<double> rates;
    std::uint64_t broken = 0;
    for (int round = 0; round < 3; ++round) {
      const Load load = read_many(io, client, place.url, "tokens=150 pace_us=20000", 64);
      rates.push_back(load.tokens_per_second);
      broken += load.broken;
    }
    const double rate = percentile(rates, 0.5);
    if (alone == 0) alone = rate;
    fmt::print("64 streams    {:14} {:8.0f} tokens/s  {:6.2f} %  broken {}\n", place.name, rate,
               100 * rate / alone, broken);
  }
}

void measure_moves(http::IoThreads& io, http::Client& client, const std::string& url) {
  std::vector<double> gaps;
  std::uint64_t broken = 0;
  for (int round = 0; round < 60; ++round) {
    const StreamTimes one = read_one(io, client, url, "tokens=12 pace_us=2000 cut_after=7");
    if (one.is_whole && one.tokens == 12) gaps.push_back(one.gap_ms);
    if (!one.is_whole || one.tokens != 12) ++broken;
  }
  fmt::print("move          gap p50 {:7.3f} ms  p99 {:7.3f} ms  of {}, broken {}\n",
             percentile(gaps, 0.5), percentile(gaps, 0.99), gaps.size(), broken);
}

void measure_cancels(http::Client& client, const std::string& fleet) {
  std::vector<double> times;
  for (int round = 0; round < 100; ++round) {
    http::ClientRequest submit(http::Method::Post, fleet + "/v2/tasks");
    submit.body =
        R"({"kind":"chat","detach":true,"request":{"model":"story","messages":[{"role":"user","content":"hi"}],"user":"script tokens=100000 pace_us=2000"}})";
    const Result<http::Response> accepted = client.send(submit);
    if (!accepted.ok() || accepted->status != 202) {
      fmt::print("cancel        a task was refused: {}\n",
                 accepted.ok() ? accepted->body : accepted.error().message);
      return;
    }
    const Result<json::Value> body = json::parse(accepted->body);
    const std::string job(json::view(body->as_object().at("job_id").as_string()));
    std::this_thread::sleep_for(milliseconds(20));
    const SteadyClock::time_point start = SteadyClock::now();
    const Result<http::Response> ended =
        client.send({http::Method::Delete, fleet + "/v2/tasks/" + job});
    if (ended.ok() && ended->status == 200) times.push_back(ms_between(start, SteadyClock::now()));
  }
  fmt::print("cancel        word to end p50 {:7.3f} ms  p99 {:7.3f} ms  of {}\n",
             percentile(times, 0.5), percentile(times, 0.99), times.size());
}

int run_all(const std::string& folder) {
  const std::string self = (base::own_folder() / "relay_bench").string();
  const Child pool({self, "pool"});
  const Child fleet({self, "fleet", folder + "/store", pool.line()});
  const Nginx nginx(folder, pool.line());
  if (pool.line().empty() || fleet.line().empty()) {
    fmt::print(stderr, "relay_bench: a child did not start\n");
    return 1;
  }
  http::Client client;
  http::IoThreads io(1);
  std::vector<Place> places = {{"worker alone", pool.line() + std::string(kDirect)},
                               {"orchestrator", fleet.line() + std::string(kThrough)}};
  if (!nginx.url().empty()) places.push_back({"nginx", nginx.url() + std::string(kDirect)});
  measure_first_token(io, client, places);
  measure_throughput(io, client, places);
  measure_moves(io, client, places[1].url);
  measure_cancels(client, fleet.line());
  const double before = fleet.resident_mb();
  const Load load = read_many(
      io, client, places[1].url, "tokens=20 pace_us=1000000", 2000,
      {.after = milliseconds(15'000), .resident_mb = [&fleet] { return fleet.resident_mb(); }});
  fmt::print("2,000 streams {:.0f} MB ({:.0f} MB before), {:.0f} tokens/s, broken {}\n",
             load.mid_resident_mb, before, load.tokens_per_second, load.broken);
  io.stop();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "pool") return run_pool();
  if (words.size() == 3 && words[0] == "fleet") return run_fleet(words[1], words[2]);
  if (words.size() == 1) return run_all(words[0]);
  fmt::print(stderr, "usage: relay_bench FOLDER\n");
  return 2;
}
